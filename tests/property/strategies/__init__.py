"""Strategies of hypothesis: rules as `ir.Rule`, streams of events, and ways to deliver them."""
