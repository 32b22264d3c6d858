"""Runnable stories: data, rules, a pipeline, and how well it went."""
