"""Events in the order in which rules see them, and which of them each rule receives."""
