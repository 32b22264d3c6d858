"""A package of somebody else: it registers a format, a source and a sink by entry points."""
