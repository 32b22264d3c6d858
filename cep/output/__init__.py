"""The results and counts of a run, as text on a terminal and as files."""
