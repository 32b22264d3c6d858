"""Programs that run together; some of them read the matches of others."""
