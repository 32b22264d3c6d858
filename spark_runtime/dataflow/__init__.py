"""DataFrames and files -> parcels of prepared events, brought together by key group."""
