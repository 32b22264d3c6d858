"""What events look like: values, ranges, order. `cep profile` writes it, `cep check` reads it."""
