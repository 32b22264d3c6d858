"""A compiled rule as text, its stages, its automaton drawn."""
