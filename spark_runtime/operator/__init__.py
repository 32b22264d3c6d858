"""The stateful operator and what it gives."""
