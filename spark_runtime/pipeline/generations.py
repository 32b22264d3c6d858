"""The generations of rules that have run on a checkpoint.

    <checkpoint>/rules/<number>.json

A generation is recorded before its first micro-batch begins, and its record names that micro-batch. So after
a kill at any moment, the records say to which rules the stored state belongs, and which rules compute the
next micro-batch. Checkpoints of earlier versions have no records: their rules are those of
`checkpoint.RULES`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from cep.errors import StateError
from cep.output.summary import long_duration
from cep.program.changes import ENDING, Changes, RuleChange, Verdict
from spark_runtime.event_time.reached import Reached
from spark_runtime.pipeline.stored_rules import StoredRules
from spark_runtime.storage.checkpoint_files import CheckpointFiles
from spark_runtime.storage.sealed import read_sealed, write_sealed

FOLDER = "rules"


@dataclass(frozen=True, slots=True)
class Cause:
    """When and by whom rules were changed; an empty string: unknown.

    `time`: when the generation was recorded, UTC. `author` and `commit`: those of the rule files in git, if
    the files have no uncommitted changes. `approved_by`: who approved the change.
    """

    time: str = ""
    author: str = ""
    commit: str = ""
    approved_by: str = ""


@dataclass(frozen=True, slots=True)
class Filled:
    """A gap that is filled for some rules: the matches that they would have reported without it are reported.

    Parameters
    ----------
    entry
        The gap, as it is in the ledger (`gaps.Entry.to_list`).
    rules
        Their names.
    after_us
        Only matches that end after this time are reported, because it is unknown what was reported before;
        None: all.
    matches
        How many matches were missing.
    """

    entry: tuple[Any, ...]
    rules: tuple[str, ...]
    after_us: int | None = None
    matches: int = 0

    @classmethod
    def of_json(cls, found: Mapping[str, Any]) -> Filled:
        """Return what `asdict` gave; raise KeyError or TypeError for other values."""
        return cls(**{**found, "entry": tuple(found["entry"]), "rules": tuple(found["rules"])})


@dataclass(frozen=True)
class Generation:
    """Rules from one change to the next.

    Parameters
    ----------
    number
        0 for the first rules.
    batch
        The first micro-batch that they compute.
    begins_us
        New and changed rules see the events after this time; None: all events.
    changes
        The rules whose verdict is not `same`.
    warm
        Rules that begin with the past, or begin again with all of it (`backfill`).
    from_us
        They have seen the events at or after this time; None: all events.
    filled
        The gaps that are filled by it; the rules are then the previous ones.
    reached_us
        The watermark before its first micro-batch. Matches of changed and removed rules that end later, up to
        `begins_us`, are reported by neither version (`hole_us`); None: unknown.
    """

    number: int
    rules: StoredRules
    batch: int = 0
    begins_us: int | None = None
    changes: tuple[RuleChange, ...] = ()
    cause: Cause = field(default_factory=Cause)
    warm: tuple[str, ...] = ()
    from_us: int | None = None
    filled: tuple[Filled, ...] = ()
    reached_us: int | None = None

    @property
    def hole_us(self) -> tuple[int, int] | None:
        """No version reports matches of `ended` that end after the first time and not after the second."""
        begins_us, reached_us = self.begins_us, self.reached_us
        if begins_us is None or reached_us is None or reached_us >= begins_us or not self.ended:
            return None
        return reached_us, begins_us

    @property
    def ended(self) -> tuple[RuleChange, ...]:
        """The rules whose earlier version ended, and whose new one, if any, knows nothing of it."""
        return tuple(of for of in self.changes if of.verdict in ENDING and of.rule not in self.warm)

    def to_json(self) -> str:
        """Return a text for a file."""
        changes = [[change.rule, change.verdict.value, list(change.reasons)] for change in self.changes]
        found = {
            "batch": self.batch,
            "begins_us": self.begins_us,
            "changes": changes,
            "cause": asdict(self.cause),
            "rules": json.loads(self.rules.to_json()),
            **({"warm": self.warm, "from_us": self.from_us} if self.warm else {}),
            **({"filled": list(map(asdict, self.filled))} if self.filled else {}),
            **({} if self.reached_us is None else {"reached_us": self.reached_us}),
        }
        return json.dumps(found, indent=1)

    @classmethod
    def of_json(cls, number: int, found: Mapping[str, Any]) -> Generation:
        """Return what `to_json` wrote; raise ValueError, KeyError or TypeError for other values."""
        begins_us = found["begins_us"]
        return cls(
            number,
            StoredRules.of_json(found["rules"]),
            int(found["batch"]),
            None if begins_us is None else int(begins_us),
            tuple(
                RuleChange(str(rule), Verdict(verdict), tuple(why)) for rule, verdict, why in found["changes"]
            ),
            Cause(**found["cause"]),
            tuple(map(str, found.get("warm", ()))),
            found.get("from_us"),
            tuple(map(Filled.of_json, found.get("filled", ()))),
            found.get("reached_us"),
        )

    def following(
        self, rules: StoredRules, batch: int, reached: Reached, changes: Changes, cause: Cause
    ) -> Generation:
        """Return the next generation, whose first micro-batch begins where `reached` is."""
        told = tuple(change for change in changes.rules if change.verdict is not Verdict.SAME)
        begins_us, reached_us = reached.read_until_us, reached.watermark_us
        return Generation(self.number + 1, rules, batch, begins_us, told, cause, reached_us=reached_us)


def change_lines(changes: Changes, lateness_us: int = 0) -> Iterator[str]:
    """Yield a line about each rule that is not the same, then one about matches that no rule reports.

    `lateness_us`: that of the rules before.
    """
    told = [change for change in changes.rules if change.verdict is not Verdict.SAME]
    width = max((len(change.rule) for change in told), default=0)
    for change in told:
        ends = [f"its {changes.remembered(change.rule)} end"] if change.verdict in ENDING else []
        ends += [changes.final[change.rule]] if change.rule in changes.final else []
        why = "; ".join((*change.reasons, *ends))
        yield f"  {change.verdict.value:<8}  {change.rule:<{width}}  {why}".rstrip()
    if told_by_neither := unreported_before(changes, lateness_us):
        yield told_by_neither


def unreported_before(changes: Changes, lateness_us: int) -> str | None:
    """Return a line about the matches that wait for late events when rules end; None: there are none.

    `lateness_us`: that of the rules before.
    """
    if not lateness_us or ENDING.isdisjoint(changes.verdicts.values()):
        return None
    return unreported(f"in the last {long_duration(lateness_us)} before the change")


def unreported(when: str) -> str:
    """Return a line about the matches of changed and removed rules that no version of them reports."""
    return f"matches of changed and removed rules that end {when} are reported by neither version"


def numbers(files: CheckpointFiles) -> list[int]:
    """Return the numbers of the recorded generations: 0, 1, and so on.

    Raises StateError: one before the last is missing (E0702).
    """
    names = (name.removesuffix(".json") for name in files.names(FOLDER))
    found = sorted(int(name) for name in names if name.isdigit())
    for expected, number in enumerate(found):
        if number != expected:
            raise _unusable(expected, "missing")
    return found


def read_generation(files: CheckpointFiles, number: int) -> Generation:
    """Return a recorded generation. Raises StateError: its record is missing or damaged (E0702)."""

    def parsed(text: str) -> Generation:
        return Generation.of_json(number, json.loads(text))

    found = read_sealed(files, _name(number), parsed, _unusable(number, "damaged"))
    if found is None:
        raise _unusable(number, "missing")
    return found


def _unusable(number: int, how: str) -> StateError:
    return StateError(
        "E0702",
        f"`{_name(number)}` in the checkpoint, which has rules of its stream, is {how}",
        "restore the checkpoint directory as a whole, or start with an empty one",
    )


def write_generation(files: CheckpointFiles, generation: Generation) -> None:
    """Record a generation."""
    write_sealed(files, _name(generation.number), generation.to_json())


def _name(number: int) -> str:
    return f"{FOLDER}/{number}.json"


@dataclass(frozen=True, slots=True)
class Standing:
    """The generations that matter after a micro-batch.

    `stored`: that of the stored state. `latest`: that which computes the next micro-batch.
    """

    stored: Generation
    latest: Generation

    @property
    def is_pending(self) -> bool:
        """Whether the latest generation has computed nothing."""
        return self.stored.number != self.latest.number


def standing(files: CheckpointFiles, done: int, rules: StoredRules) -> Standing:
    """Return the generations that matter after micro-batch `done`.

    `rules` are those of a checkpoint without records.
    """
    known = numbers(files)
    if not known:
        first = Generation(0, rules)
        return Standing(first, first)
    latest = read_generation(files, known[-1])
    if latest.batch <= done or latest.number == 0:
        return Standing(latest, latest)
    return Standing(read_generation(files, latest.number - 1), latest)


def withdraw(files: CheckpointFiles, found: Standing) -> Standing:
    """Remove the record of a generation for which no micro-batch is planned."""
    files.remove(_name(found.latest.number))
    return Standing(found.stored, found.stored)


def renewed(files: CheckpointFiles, found: Standing, rules: StoredRules) -> Standing:
    """Give the latest generation these texts, which mean the same."""
    latest = replace(found.latest, rules=rules)
    if latest != found.latest:
        write_generation(files, latest)
    return Standing(found.stored if found.is_pending else latest, latest)


def all_generations(files: CheckpointFiles) -> Sequence[Generation]:
    """Return all recorded generations, the oldest first."""
    return [read_generation(files, number) for number in numbers(files)]


def require_continues(changes: Changes) -> None:
    """Raise StateError (E0701) unless stored state can continue with the changed rules."""
    for refusal in changes.refusals:
        raise cannot_continue(refusal.fact, refusal.help)


def require_same_inputs(changes: Changes) -> None:
    """Raise StateError (E0701) unless rules read the same input as the previous ones."""
    for changed in changes.inputs:
        help_text = "remove the rules that read it, and run them in a pipeline of their own"
        if changed.verdict is Verdict.GONE:
            help_text = "keep a rule that reads it, or start with an empty checkpoint directory"
        raise cannot_continue(f"input `{changed.name}` is {changed.verdict}", help_text)


def cannot_continue(fact: str, help_text: str) -> StateError:
    """Return the error for rules with which stored state cannot continue."""
    return StateError("E0701", f"the stored state cannot continue with these rules: {fact}", help_text)
