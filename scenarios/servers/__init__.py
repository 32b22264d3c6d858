"""Servers that scenarios and tests start on this machine, without root and without containers."""
