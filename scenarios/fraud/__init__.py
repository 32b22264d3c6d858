"""Payment cards: generated traffic with planted fraud, six rules, and a score of what they find."""
