"""What takes messages for a spool, a module for each protocol."""
