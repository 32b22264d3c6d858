"""A webhook as a sink: posts rows to an HTTP server."""
