"""The words of the language by what they are for, and the grammar by which editors color rules."""

from __future__ import annotations

from typing import Any

from cep.compiler.aggregates import AGGREGATES
from cep.compiler.typing.functions import FUNCTION_NAMES
from cep.language.ast import OverKind
from cep.language.grammar import CLAUSE_WORDS, JOIN_WORDS, PAIRED_CLAUSES, RESERVED, STATUSES, WINDOW_KINDS
from cep.program.opcodes import SEVERITIES
from cep.program.window_functions import WINDOW_FUNCTIONS
from cep.schema.time_literals import SHORT_UNITS, UNIT_WORDS

CLAUSES = CLAUSE_WORDS | frozenset(PAIRED_CLAUSES.values()) | JOIN_WORDS | {"STATUS"} | STATUSES
"""Words that begin a clause, or that follow its first word."""

CONSTANTS = frozenset(("TRUE", "FALSE", "NULL"))
"""Words that are values."""

UNITS = frozenset(map(str.upper, (*UNIT_WORDS, *SHORT_UNITS))) | {"EVENT", "EVENTS"}
"""Words after a number."""

FUNCTIONS = frozenset((*FUNCTION_NAMES, *AGGREGATES, *WINDOW_FUNCTIONS)) | {"CAST", "TRY_CAST"}
"""Words before a parenthesis."""

# fmt: off
OTHERS = (RESERVED - CONSTANTS - CLAUSES) | frozenset(map(str, OverKind)) | WINDOW_KINDS | frozenset((
    "BY", "DATE", "DISTINCT", "DROP", "EACH", "EARLIEST", "END", "EVENT", "FAIL", "FILTER", "FIRST", "FOR",
    "GAP", "INTERVAL", "JOIN", "KEY", "LAST", "MATCHES", "NEWEST", "NEXT", "OF", "OFFSET", "OLDEST", "ON",
    "OUTER", "OVER", "OVERFLOW", "PAST", "PER", "PERMUTE", "PREFERRED", "PREVIOUS", "REGEXP", "SKIP",
    "TIMESTAMP", "TO", "WHERE", "ZONE",
))
# fmt: on
"""All other words that have a meaning somewhere."""

PHRASES = (
    "NO SKIP", "ONE ROW PER MATCH", "ALL ROWS PER MATCH", "MAX RUNS", "ON TIMEOUT", "PER DAY",
)  # fmt: skip
"""Words that have a meaning only together, and are names of columns alone."""

KEYWORDS = CLAUSES | CONSTANTS | UNITS | FUNCTIONS | OTHERS | frozenset(map(str.upper, SEVERITIES))
"""Every word that has a meaning somewhere in a rule."""


def textmate() -> dict[str, Any]:
    """Return the TextMate grammar of rule files: what VS Code, GitHub and others color by.

    A word is colored as a clause only where a line begins with it, because most of them are names elsewhere.
    """
    return {
        "$schema": "https://raw.githubusercontent.com/martinring/tmlanguage/master/tmlanguage.json",
        "name": "spark-cep rules",
        "scopeName": "source.cep",
        "fileTypes": ["cep"],
        "patterns": [
            {"name": "comment.line.double-dash.cep", "match": "--.*$"},
            {"name": "string.quoted.single.cep", "match": "'(?:[^']|'')*'"},
            {"name": "variable.other.quoted.cep", "match": "`(?:[^`]|``)+`"},
            {
                "match": r"(?i)\b(RULE|VIEW)\s+(`(?:[^`]|``)+`|[^\W\d]\w*)",
                "captures": {
                    "1": {"name": "keyword.control.cep"},
                    "2": {"name": "entity.name.function.cep"},
                },
            },
            {
                "name": "keyword.control.cep",
                "match": rf"(?i)\b(?:{'|'.join(PHRASES)})\b".replace(" ", r"\s+"),
            },
            {"name": "keyword.control.cep", "match": rf"(?i)^\s*{_any_of(CLAUSES)}"},
            {"name": "keyword.other.cep", "match": r"(?i)\bMAX(?=\s+\d)"},
            {"name": "keyword.other.unit.cep", "match": rf"(?i)(?<=')\s+{_any_of(UNITS)}"},
            {"name": "support.function.cep", "match": rf"(?i){_any_of(FUNCTIONS)}(?=\s*\()"},
            {
                "match": rf"(?i)(\d+(?:\.\d+)?)\s*({_any_of(UNITS)})",
                "captures": {"1": {"name": "constant.numeric.cep"}, "2": {"name": "keyword.other.unit.cep"}},
            },
            {"name": "constant.numeric.cep", "match": r"\b\d+(?:\.\d+)?(?:[eE][+-]?\d+)?\b"},
            {"name": "constant.language.cep", "match": rf"(?i){_any_of(CONSTANTS)}"},
            {"name": "keyword.other.cep", "match": rf"(?i)(?<![.\w]){_any_of(RESERVED | OTHERS)}"},
            {"name": "variable.parameter.cep", "match": r"\b[^\W\d]\w*(?=\s*\.)"},
            {"name": "keyword.operator.cep", "match": r"->>|->|<=|>=|<>|!=|\|\||[-+*/%=<>!|&^?]"},
        ],
    }


def _any_of(words: frozenset[str]) -> str:
    return rf"\b(?:{'|'.join(sorted(words))})\b"
