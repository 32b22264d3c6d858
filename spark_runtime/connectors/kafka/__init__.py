"""Kafka topics as a source and a sink. The driver plans ranges of offsets; workers read them."""
