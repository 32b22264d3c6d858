"""The meaning of a rule, executed in a slow and obvious way.

`find_matches` does what docs/language/semantics says, by recursion over the pattern and one event after
another. It has no automaton, no registers and no columns. The engine must report the same matches. If a
function carries out a paragraph of docs/language/semantics, its docstring names the paragraph.
"""

from tests.oracle.derivations import TooManyRunsError
from tests.oracle.matches import Match, find_matches

__all__ = ["Match", "TooManyRunsError", "find_matches"]
