"""An exchange: generated orders and trades with planted abuse, eight rules, and a score of what they find."""
