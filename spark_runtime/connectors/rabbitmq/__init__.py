"""RabbitMQ streams as a source, and exchanges and queues as a sink."""
