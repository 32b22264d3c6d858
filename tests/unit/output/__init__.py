"""Tests of `cep.output`."""
