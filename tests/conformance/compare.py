"""Comparison of our answers with the recorded ones: they agree, differ on purpose or differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, assert_never

from tests.conformance.answers import answer
from tests.conformance.case_files import read_cases
from tests.conformance.differences import Part, differences_of
from tests.conformance.reading import read_pattern
from tests.conformance.stages import Stage, UntranslatableError

AGREES, DIFFERS, UNSUPPORTED, NOT_COMPARED = "agrees", "differs", "unsupported", "not compared"

_MATCHES, _TIMEOUTS = ("matches", "ids"), ("timeouts", "timeout_ids")


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of one case, and the intended differences that its pattern can show."""

    name: str
    outcome: str
    ours: Any
    theirs: Any
    rule: str | None
    why: str | None
    documented: tuple[str, ...]
    features: tuple[str, ...]

    @property
    def is_explained(self) -> bool:
        """Return whether the case agrees or a documented difference applies."""
        return self.outcome in (AGREES, NOT_COMPARED) or bool(self.documented)


def judge(case: Mapping[str, Any]) -> Verdict:
    """Answer a case and compare the answer with the recorded one."""
    ours = answer(case)
    same = {one: group[0] for group in case.get("same", ()) for one in group}
    theirs, found = _theirs(case, same), _found(case, ours, same)
    if theirs is None:
        outcome = NOT_COMPARED
    elif ours["unsupported"] or ours["error"]:
        outcome = AGREES if "error" in theirs else UNSUPPORTED
    else:
        outcome = AGREES if "error" in theirs or all(found[key] == theirs[key] for key in theirs) else DIFFERS
    why = ours["unsupported"] or (ours["error"] and f"{ours['error']['code']}: {ours['error']['message']}")
    documented = _documented(case, outcome, found, theirs)
    return Verdict(case["name"], outcome, found, theirs, ours["rule"], why, documented, _features(case))


def _documented(
    case: Mapping[str, Any], outcome: str, found: Mapping[str, Any], theirs: Mapping[str, Any] | None
) -> tuple[str, ...]:
    """Return the documented differences that explain why the answers differ."""
    if outcome not in (DIFFERS, UNSUPPORTED) or theirs is None:
        return ()
    return tuple(one.name for one in differences_of(case) if _is_confined_to(one.part, case, found, theirs))


def _is_confined_to(
    part: Part, case: Mapping[str, Any], found: Mapping[str, Any], theirs: Mapping[str, Any]
) -> bool:
    """Return whether the answers differ only in `part`."""
    same_matches = all(found[key] == theirs[key] for key in _MATCHES if key in theirs)
    match part:
        case Part.ALL:
            return True
        case Part.TIMEOUTS:
            return same_matches
        case Part.MATCHED_TIMEOUTS:
            matched = {match for key in _MATCHES if key in theirs for match in theirs[key]}
            return same_matches and all(
                found[key] <= theirs[key] and {one for one, _ in theirs[key] - found[key]} <= matched
                for key in _TIMEOUTS
                if key in theirs
            )
        case Part.REPEATS:
            return all(set(found[key]) == set(theirs[key]) for key in theirs if key in found)
        case Part.CHOICE:
            return _begin_together(case, found, theirs)
        case _:
            assert_never(part)


def _begin_together(case: Mapping[str, Any], found: Mapping[str, Any], theirs: Mapping[str, Any]) -> bool:
    """Return whether both answers have a match that begins with the first event at which matches differ.

    Then the matches prune different runs, so later matches differ too.
    """
    if "matches" not in theirs:
        return True
    ours, their = _by_start(case, found["matches"]), _by_start(case, theirs["matches"])
    first = next((start for start in sorted(ours | their) if ours.get(start) != their.get(start)), None)
    return first is None or (first in ours and first in their)


def _by_start(case: Mapping[str, Any], matches: Counter[Any]) -> dict[int, Counter[Any]]:
    """Return matches by the number of the event with which they begin."""
    events = [event for event in case["events"] if "id" in event]
    order = [repr(event["id"]) for event in sorted(events, key=lambda one: one["ts"])]
    found: dict[int, Counter[Any]] = {}
    for match, times in matches.items():
        start = min(order.index(one) for _, ids in match for one in ids)
        found.setdefault(start, Counter())[match] = times
    return found


def _theirs(case: Mapping[str, Any], same: Mapping[Any, Any]) -> dict[str, Any] | None:
    if case.get("expected_error"):
        return {"error": case["expected_error"]}
    found: dict[str, Any] = {}
    if "answer" in case:
        found["matches"] = _multiset(case["answer"]["matches"], same)
        found["timeouts"] = _timeouts(case["answer"]["timeouts"], same)
    if "expected" in case:
        found["ids"] = Counter(_ids(ids, same) for ids in case["expected"])
    if "expected_timeouts" in case:
        found["timeout_ids"] = {
            (_ids(item["ids"] if isinstance(item, dict) else item[0], same),
             item["ts"] if isinstance(item, dict) else item[1])
            for item in case["expected_timeouts"]
        }  # fmt: skip
    return found or None


def _found(case: Mapping[str, Any], ours: Mapping[str, Any], same: Mapping[Any, Any]) -> dict[str, Any]:
    return {
        "matches": _multiset(ours["matches"], same),
        "timeouts": _timeouts(ours["timeouts"], same),
        "ids": Counter(
            _ids([one for ids in match.values() for one in ids], same) for match in ours["matches"]
        ),
        "timeout_ids": {
            (_ids([one for ids in item["match"].values() for one in ids], same), item["ts"])
            for item in ours["timeouts"]
        },
    }


def _ids(ids: Sequence[Any], same: Mapping[Any, Any]) -> tuple[str, ...]:
    return tuple(sorted(repr(same.get(one, one)) for one in ids))


def _by_stage(match: Mapping[str, Sequence[Any]], same: Mapping[Any, Any]) -> tuple[Any, ...]:
    return tuple(
        sorted((name, tuple(repr(same.get(one, one)) for one in ids)) for name, ids in match.items() if ids)
    )


def _multiset(matches: Sequence[Mapping[str, Sequence[Any]]], same: Mapping[Any, Any]) -> Counter[Any]:
    return Counter(_by_stage(match, same) for match in matches)


def _timeouts(timeouts: Sequence[Mapping[str, Any]], same: Mapping[Any, Any]) -> set[Any]:
    return {(_by_stage(item["match"], same), item["ts"]) for item in timeouts}


def _features(case: Mapping[str, Any]) -> tuple[str, ...]:
    try:
        pattern = read_pattern(case["pattern"])
    except UntranslatableError:
        return ("refused",)
    found = {"skip " + pattern.skip.kind}
    for stage in pattern.stages:
        _stage_features(stage, found)
    if pattern.window_ms:
        found.add("window")
    return tuple(sorted(found))


def _stage_features(stage: Stage, found: set[str]) -> None:
    found.add(stage.contiguity)
    if stage.stages:
        found.add("group")
    found |= {word for word in ("optional", "greedy") if getattr(stage, word)}
    if stage.has_quantifier:
        found.add(("loop " if stage.loops else "times ") + stage.inner)
    found |= {word for word in ("until", "gap_ms", "repeat_gap_ms") if getattr(stage, word) is not None}
    for inner in stage.stages:
        _stage_features(inner, found)


def report(files: Sequence[str]) -> int:
    """Print the agreement by feature and every difference. Return 1 if a difference is not documented."""
    verdicts = []
    for name in files:
        verdicts += [judge(case) for case in read_cases(name)]
    _print_table("all cases", verdicts)
    for feature in sorted({feature for verdict in verdicts for feature in verdict.features}):
        _print_table(feature, [verdict for verdict in verdicts if feature in verdict.features])
    for verdict in verdicts:
        if verdict.outcome in (DIFFERS, UNSUPPORTED):
            _print_verdict(verdict)
    return 0 if all(verdict.is_explained for verdict in verdicts) else 1


def _print_table(title: str, verdicts: Sequence[Verdict]) -> None:
    counts = Counter(verdict.outcome for verdict in verdicts)
    open_ones = sum(not verdict.is_explained for verdict in verdicts)
    parts = ", ".join(
        f"{outcome} {counts[outcome]}" for outcome in (AGREES, DIFFERS, UNSUPPORTED, NOT_COMPARED)
    )
    print(f"{title:<24} {len(verdicts):>4}: {parts}; not documented {open_ones}")


def _print_verdict(verdict: Verdict) -> None:
    kinds = ", ".join(verdict.documented) or "NOT DOCUMENTED"
    print(f"\n{verdict.name}: {verdict.outcome} ({kinds}) {verdict.why or ''}")
    if verdict.outcome != DIFFERS:
        return
    print("  " + (verdict.rule or "").replace("\n", "\n  ").rstrip())
    for key, theirs in verdict.theirs.items():
        ours = verdict.ours[key]
        if ours != theirs:
            print(f"  {key}: only in Flink {theirs - ours}, only here {ours - theirs}")
