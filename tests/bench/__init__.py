"""Throughput and memory of the fraud scenario, beside Spark's own operators: ``python -m tests.bench``."""
