"""`cep spool` takes messages of a protocol and keeps them for pipelines."""
