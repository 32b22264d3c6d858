"""Keys: from a key to its slot, and the hash table of rows."""
