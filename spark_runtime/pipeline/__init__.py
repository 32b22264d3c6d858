"""Reads pipeline files, runs them, and keeps their checkpoints."""
