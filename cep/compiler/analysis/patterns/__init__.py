"""Checks of patterns: whether they are sound, and what is likely a mistake."""
