"""Turns DataFrames and files into parcels of prepared events, grouped by key group."""
