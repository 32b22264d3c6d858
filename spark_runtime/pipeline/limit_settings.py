"""The settings of limits over all keys: `limits` of a pipeline file, and the argument of `detect`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from cep.diagnostics.diagnostic import in_order
from cep.errors import RuleError, Source
from cep.settings import declared
from cep.settings.declared import declared_settings, read
from cep.settings.settings import Settings
from cep.settings.yaml_document import Document
from spark_runtime.operator.limits import HOT_PERCENT, Limit, Limits, Then


def _limit(given: OneLimit | DailyLimit | StateLimit, settings: Settings) -> Limit | None:
    return None if given.at_most is None else Limit(given.at_most, given.then)


@dataclass(frozen=True, slots=True)
class OneLimit:
    """A limit of all key groups together, and what happens beyond it."""

    at_most: int | None = declared.integer(None, at_least=1, required=True)
    then: Then = declared.choice({item.value: item for item in Then})


@dataclass(frozen=True, slots=True)
class DailyLimit:
    """A limit of a rule and day: what was reported earlier cannot be dropped."""

    at_most: int | None = declared.integer(None, at_least=1, required=True)
    then: Then = declared.choice({item.value: item for item in (Then.FAIL, Then.NEWEST)})


@dataclass(frozen=True, slots=True)
class StateLimit:
    """A limit on something that cannot be dropped."""

    at_most: int | None = declared.integer(None, at_least=1, required=True)
    then: Then = declared.choice({Then.FAIL.value: Then.FAIL})


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """The limits over all keys."""

    open_runs: Limit | None = declared.nested(OneLimit, _limit)
    matches: Limit | None = declared.nested(OneLimit, _limit)
    run_mb: Limit | None = declared.nested(OneLimit, _limit, name="open_runs_mb")
    waiting: Limit | None = declared.nested(OneLimit, _limit, name="waiting_events")
    alerts_per_day: Limit | None = declared.nested(DailyLimit, _limit)
    state_mb: Limit | None = declared.nested(StateLimit, _limit)
    hot_percent: int = declared.integer(HOT_PERCENT, at_least=1, name="hot_key_percent")

    def limits(self) -> Limits:
        """Return the limits."""
        return Limits(
            open_runs=self.open_runs,
            matches=self.matches,
            run_mb=self.run_mb,
            waiting_events=self.waiting,
            hot_percent=self.hot_percent,
            alerts_per_day=self.alerts_per_day,
            state_mb=self.state_mb,
        )


def not_with_corrections(limits: Limits) -> Iterator[tuple[str, str, str]]:
    """Yield the limits that are impossible if late events correct matches: the fact, why, the help."""
    for name, limit in limits.by_name().items():
        if limit.then is not Then.FAIL:
            why = "a late event may withdraw what was dropped, or find it again"
            yield f"`limits: {name}` drops, with corrections", why, "write: then: fail"
        elif name == "open_runs_mb":
            why = "the states to which late events go back hold runs, too"
            yield f"`limits: {name}` with corrections", why, "limit open_runs, or state_mb"


def read_limits(text: str) -> Limits:
    """Return the limits that a text describes, in the form of a pipeline file.

    Raises RuleError: a setting is wrong, or unknown.
    """
    document = Document(Source("limits", text))
    root = document.root()
    found = None if root is None else document.settings(root, "`limits`", declared_settings(LimitSettings))
    if root is not None and found is not None:
        given = read(LimitSettings, Settings(document, Path(), root, "`limits`", found))
    if root is None or found is None or document.diagnostics:
        raise RuleError(in_order(document.diagnostics))
    return given.limits()


def text_of(given: object) -> str | None:
    """Return a dictionary of limits as text; None: it is not a dictionary."""
    try:
        return yaml.safe_dump(given, sort_keys=False) if isinstance(given, dict) else None
    except yaml.YAMLError:
        return None
