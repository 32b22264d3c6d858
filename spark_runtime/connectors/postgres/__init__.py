"""Changes of tables of PostgreSQL as a source: the driver plans ranges of the log, workers read them."""
