"""Pipeline files: read, run, kept in a checkpoint."""
