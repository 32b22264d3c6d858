"""Random rules over random streams: the engine is held to the oracle."""
