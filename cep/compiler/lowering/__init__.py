"""NFA and typed rule -> Program."""
