"""Rules over files in one process, without Spark."""
