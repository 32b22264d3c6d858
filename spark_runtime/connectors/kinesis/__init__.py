"""Streams of Amazon Kinesis as a source of events."""
