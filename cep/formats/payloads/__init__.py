"""Formats of messages that have types of their own, and a schema: Avro, Protocol Buffers."""
