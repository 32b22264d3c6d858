"""The clauses of a rule."""
