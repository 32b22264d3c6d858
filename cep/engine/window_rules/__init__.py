"""Rules without a pattern: rows of ended windows, including windows without events."""
