"""`cep lint`: what a rule lacks to be trusted, and the comments that allow it."""
