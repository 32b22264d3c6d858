"""A compiled rule as text, its stages, and a drawing of its automaton."""
