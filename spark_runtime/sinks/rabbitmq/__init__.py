"""An exchange or a queue of RabbitMQ as a sink."""
