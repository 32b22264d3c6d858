"""NATS JetStream streams as a source of events."""
