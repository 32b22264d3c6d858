"""The waist: what the compiler writes and the engine reads."""
