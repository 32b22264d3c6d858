"""The clauses of a rule as messages show them."""

from __future__ import annotations

from cep.language.clauses.joins import JOIN_FORM
from cep.language.clauses.report import REPORT_FORMS
from cep.language.clauses.window import WINDOW_FORMS

FORMS = {
    "RULE": "RULE name",
    "TITLE": "TITLE 'text'",
    "SEVERITY": "SEVERITY high",
    "TAGS": "TAGS first, second",
    "STATUS": "STATUS shadow",
    "PARAM": "PARAM small = 5, large = 200",
    "FROM": "FROM stream, or FROM stream, other_stream, or FROM MATCHES OF rule, stream",
    "JOIN": JOIN_FORM,
    "PARTITION": "PARTITION BY column, or PARTITION BY stream.column = other_stream.column",
    "PATTERN": "PATTERN a -> b",
    "WITHIN": "WITHIN 10 MINUTES or WITHIN 20 EVENTS",
    "SUBSET": "SUBSET u = (a, b)",
    "LET": "LET usual = AVG(amount) OVER PREVIOUS 100 EVENTS",
    "DEFINE": "DEFINE a AS amount < 5, b AS amount > 500",
    "MEASURES": "MEASURES COUNT(a.*) AS n, b.amount AS loss",
    "MATCH": "MATCH EARLIEST or MATCH ALL",
    "AFTER": "AFTER MATCH SKIP PAST LAST EVENT",
    "NO": "NO SKIP",
    **REPORT_FORMS,
    **WINDOW_FORMS,
    "VIEW": "VIEW name",
    "KEY": "KEY column",
    **{word: f"{word} JOIN customers ON customer_id" for word in ("INNER", "LEFT")},
    **{word: f"{word} JOIN limits ON account_id" for word in ("RIGHT", "FULL")},
    "SELECT": "SELECT accounts.balance, customers.name AS name",
}
"""First word of a clause -> how it is written."""

VIEW_CLAUSES_SHOWN = (
    "TITLE, SEVERITY, TAGS, STATUS, PARAM, KEY, FROM, JOIN, LEFT JOIN, RIGHT JOIN, FULL JOIN, WHERE, SELECT"
)
"""The clauses of a view, for a help."""

CLAUSES_SHOWN = (
    "TITLE, SEVERITY, TAGS, STATUS, PARAM, FROM, JOIN, PARTITION BY, PATTERN, WITHIN, SUBSET, LET, DEFINE, "
    "MEASURES, MATCH, AFTER MATCH, ONE ROW PER MATCH, ALL ROWS PER MATCH, ON TIMEOUT, SUPPRESS FOR, MAX RUNS"
)
"""The clauses of a rule with a PATTERN, for a help."""

WINDOW_CLAUSES_SHOWN = (
    "TITLE, SEVERITY, TAGS, STATUS, PARAM, FROM, JOIN, PARTITION BY, WINDOW, LET, WHERE, HAVING, MEASURES, "
    "SUPPRESS FOR"
)
"""The clauses of a rule with a WINDOW, for a help."""


def clauses_shown(*, has_window: bool, has_pattern: bool) -> str:
    """Return the clauses that a rule may have, for a help text."""
    if has_window:
        return WINDOW_CLAUSES_SHOWN
    if has_pattern:
        return CLAUSES_SHOWN
    return f"{CLAUSES_SHOWN}; or in place of PATTERN: WINDOW, with WHERE and HAVING"
