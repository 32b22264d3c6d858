"""The data that the compiler writes and the engine reads."""
