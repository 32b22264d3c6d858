"""Syntax trees -> typed rules, with errors and warnings."""
