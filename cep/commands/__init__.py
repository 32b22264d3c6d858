"""The command `cep`."""
