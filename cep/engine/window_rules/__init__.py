"""Rules without a pattern: rows of windows that end, also of windows without events."""
