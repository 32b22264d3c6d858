"""Servers that tests talk to, started for them."""
