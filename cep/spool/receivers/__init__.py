"""Receivers of messages for a spool, one module for each protocol."""
