"""Apache Flink's CEP library as a witness: its cases as rule text, its answers beside ours.

`python -m tests.conformance [FILE]` answers cases, `python -m tests.conformance --compare FILE` compares the
answers with those that are recorded. What differs on purpose is in docs/flink.md and `differences`.
"""
