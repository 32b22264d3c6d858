"""Where outputs go, and who has written there before."""
