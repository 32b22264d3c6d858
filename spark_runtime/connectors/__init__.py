"""The systems that pipelines read and write: one folder each, with connection, settings, source and sink."""
