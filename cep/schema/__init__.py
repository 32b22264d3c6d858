"""Descriptions of data: streams and their columns, types, and values as text, in JSON and in Arrow."""
