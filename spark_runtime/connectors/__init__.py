"""The systems that pipelines read and write. Each folder contains connection, settings, source and sink.

Modules that workers import load no compiler (the import contract lists them), and load the package of a
system only where it is used.
"""
