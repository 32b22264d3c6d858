"""Expressions of a rule -> typed expressions."""
