"""Corrections: what late events change in rows that were already reported."""
