"""Payment cards: generated traffic with planted fraud, nine rules, and a score of what they find."""
