"""What is asked of patterns: that they are sound, and what is likely a mistake."""
