"""Bytes -> events or dead letters: formats, files, counts, late events."""
