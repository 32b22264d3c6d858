"""Files of a run: those of a checkpoint on any file system, and the lock of a folder."""
