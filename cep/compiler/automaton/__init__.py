"""Typed pattern -> NFA."""
