"""PostgreSQL tables as a source and a sink. The driver plans ranges of the log; workers read them."""
