"""The meaning of a rule, executed the slow and obvious way.

`find_matches` does what docs/semantics.md says, by recursion over the pattern and over one event after
another: no automaton, no registers, no columns. The engine is held to it. Where a function carries out a
paragraph of that page, its docstring names it.
"""

from tests.oracle.derivations import TooManyRunsError
from tests.oracle.matches import Match, find_matches

__all__ = ["Match", "TooManyRunsError", "find_matches"]
