"""Logs of messages as sources: what Kafka, NATS JetStream, Kinesis and streams of RabbitMQ share."""
