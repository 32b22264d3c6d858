"""Texts in other languages that are given as rules: the language, and the equivalent rule."""
