"""Events of a stream -> prepared events: local predicates, derived columns, partitions."""
