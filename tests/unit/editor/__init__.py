"""Tests of what editors and agents ask."""
