"""Streams of RabbitMQ as a source of events."""
