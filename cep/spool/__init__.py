"""The spool: keeps messages that cannot be requested twice until every pipeline has read them."""
