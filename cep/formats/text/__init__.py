"""Formats whose records are lines of text: JSON lines, CSV, and the lines of other packages."""
