"""Comparison with Apache Flink's CEP library: its patterns become rules, its matches are compared with ours.

`python -m tests.conformance [FILE]` answers cases. `python -m tests.conformance --compare FILE` compares our
answers with the recorded answers of Flink. docs/start/flink.md has the intended differences.
"""
