"""The spool: keeps messages that cannot be asked for twice, until every pipeline has read them."""
