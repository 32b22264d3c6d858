"""Files that a run keeps: of a checkpoint on any file system, and the lock of a folder."""
