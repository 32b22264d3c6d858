"""What editors and agents ask about rules: pure functions over texts, and the two servers that wrap them."""
