"""The matcher: from ordered events to matches, with the whole state of one rule set."""
