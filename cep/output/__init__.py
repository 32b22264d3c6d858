"""What a run found and what happened in it, as text on a terminal and as files."""
