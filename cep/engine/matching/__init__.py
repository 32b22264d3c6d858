"""The matcher: from ordered events to matches, with all state of one rule set."""
