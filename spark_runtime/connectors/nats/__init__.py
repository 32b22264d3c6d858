"""Streams of NATS JetStream as a source of events."""
