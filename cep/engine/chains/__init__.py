"""Programs that run together, some of them over the matches of others."""
