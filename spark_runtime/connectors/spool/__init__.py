"""A spool as a source of events."""
