"""Syntax trees -> Program, in stages that each print."""
