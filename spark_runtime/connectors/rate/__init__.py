"""Spark's generator of rows as a source."""
