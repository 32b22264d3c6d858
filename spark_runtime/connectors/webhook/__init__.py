"""A webhook as a sink: rows are posted to a server of HTTP."""
