"""JSON lines: what a line means, and many lines at once as columns."""
