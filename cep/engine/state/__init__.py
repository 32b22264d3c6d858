"""The state between two calls: runs, strings, kept events, suppressions; and its bytes."""
