"""Files that a user writes: text files, YAML and the streams file."""
