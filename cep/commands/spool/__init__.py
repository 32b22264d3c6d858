"""`cep spool` receives messages of a protocol and keeps them for pipelines."""
