"""Kills of `cep run`: where it is killed, the run that is killed, and what its sinks have then."""
