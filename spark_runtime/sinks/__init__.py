"""Where matches, late events and dead letters go."""
