"""The systems that pipelines read and write. Each folder contains connection, settings, source and sink."""
