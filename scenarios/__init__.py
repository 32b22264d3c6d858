"""Runnable scenarios: data, rules, a pipeline, and a score of the results."""
