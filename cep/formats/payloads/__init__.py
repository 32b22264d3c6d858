"""Formats of messages with their own types and a schema: Avro, Protocol Buffers."""
