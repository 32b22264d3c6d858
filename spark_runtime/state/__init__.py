"""The state of key groups between two micro-batches: small inline, large as files below the checkpoint."""
