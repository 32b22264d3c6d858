"""The clauses that say what is reported: rows, timeouts, suppression, and how many runs a key may have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from cep.language import ast
from cep.language.cursor import Cursor

REPORT_FORMS = {
    "ALL": "ALL ROWS PER MATCH",
    "ONE": "ONE ROW PER MATCH",
    "ON": "ON TIMEOUT",
    "SUPPRESS": "SUPPRESS FOR 1 HOUR",
    "MAX": "MAX RUNS 1000 PER KEY ON OVERFLOW DROP OLDEST",
}
"""First word of a clause -> how it is written."""

_OVERFLOW_HELP = "write DROP OLDEST, DROP NEWEST or FAIL"


class ReportClauses:
    """Reads these clauses, each after its first word, into `report`."""

    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor
        self.report = ast.Report()
        self.readers: dict[str, Callable[[], None]] = {
            "ALL": partial(self._rows, ast.Rows.ALL, "ROWS"),
            "ONE": partial(self._rows, ast.Rows.ONE, "ROW"),
            "ON": self.read_timeout,
            "SUPPRESS": self.read_suppression,
            "MAX": self.read_limit,
        }

    def _start(self) -> int:
        return self.cursor.tokens[self.cursor.at - 1].start

    def _rows(self, rows: ast.Rows, *words: str) -> None:
        for word in (*words, "PER", "MATCH"):
            self.cursor.expect_word(word)
        self.report = replace(self.report, rows=rows)

    def read_timeout(self) -> None:
        """Read ``ON TIMEOUT``."""
        start = self._start()
        self.cursor.expect_word("TIMEOUT")
        self.report = replace(self.report, timeout=ast.Timeout(self.cursor.span_from(start)))

    def read_suppression(self) -> None:
        """Read ``SUPPRESS FOR duration`` or ``SUPPRESS AFTER n PER DAY``."""
        cursor = self.cursor
        if cursor.accept_word("AFTER"):
            start = cursor.now.start
            n_per_day = cursor.integer("a whole number")
            suppression = ast.Suppression(0, cursor.span_from(start), n_per_day)
            cursor.expect_word("PER")
            cursor.expect_word("DAY")
        else:
            cursor.expect_word("FOR")
            start = cursor.now.start
            suppression = ast.Suppression(cursor.duration(), cursor.span_from(start))
        self.report = replace(self.report, suppression=suppression)

    def read_limit(self) -> None:
        """Read ``MAX RUNS n PER KEY [ON OVERFLOW ...]``."""
        cursor = self.cursor
        cursor.expect_word("RUNS")
        start = cursor.now.start
        n_runs = cursor.integer("a whole number")
        span = cursor.span_from(start)
        cursor.expect_word("PER")
        cursor.expect_word("KEY")
        overflow = None
        if cursor.ahead().word != "TIMEOUT" and cursor.accept_word("ON"):  # ON TIMEOUT is another clause
            cursor.expect_word("OVERFLOW")
            if cursor.accept_word("FAIL"):
                overflow = ast.Overflow.FAIL
            elif not cursor.accept_word("DROP"):
                cursor.unexpected("DROP or FAIL", _OVERFLOW_HELP)
            elif word := cursor.accept_word("OLDEST", "NEWEST"):
                overflow = ast.Overflow(f"DROP {word.word}")
            else:
                cursor.unexpected("OLDEST or NEWEST", _OVERFLOW_HELP)
        self.report = replace(self.report, limit=ast.RunLimit(n_runs, overflow, span))
