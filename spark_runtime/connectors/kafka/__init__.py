"""Topics of Kafka as a source: the driver plans offsets, workers read ranges of them."""
