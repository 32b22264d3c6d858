"""Random rules over random streams. The engine must report the same matches as the oracle."""
