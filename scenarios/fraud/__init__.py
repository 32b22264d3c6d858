"""Payment cards: generated traffic with planted fraud, six rules, and how well the rules find it."""
