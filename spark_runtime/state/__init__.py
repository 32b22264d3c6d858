"""The state of key groups between two micro-batches: inline if small, otherwise as files."""
