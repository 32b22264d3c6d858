"""Logs of messages as sources: the common part of Kafka, NATS JetStream, Kinesis and RabbitMQ streams."""
