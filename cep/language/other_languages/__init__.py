"""Texts in other languages that are given as rules: which language, and which rule would say the same."""
