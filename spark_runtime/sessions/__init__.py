"""Spark sessions: Java, the Python of the workers, temporary files."""
