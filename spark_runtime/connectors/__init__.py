"""The systems that pipelines read and write. Each folder contains connection, settings, source and sink.

What workers import loads no compiler (the import contract lists it), and the package of a system only where
it is used.
"""
