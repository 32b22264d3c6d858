"""The stateful operator and its output."""
