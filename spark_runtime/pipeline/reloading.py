"""Rules that change during the life of a checkpoint: which run now, and which will follow.

The change takes place between two micro-batches. The previous rules compute a last micro-batch, in which each
key group reports what is due. Then the new generation is recorded (`generations`). Its first micro-batch
reads nothing: each key group takes over its state (`state.changing`). After a kill before the record, the
rules are unchanged. After a later kill, the next run computes the same micro-batch from the same state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

from py4j.protocol import Py4JError

from cep.engine.event_time.watermark import START_OF_TIME_US
from cep.engine.warm import is_warm, missing, warm_up
from cep.errors import CepError, StateError
from cep.program.changes import BEGINNING, Changes, Verdict, changes_of
from cep.program.identity import differences
from cep.rule_set import Corrections, RuleSet
from cep.rulebook import compile_texts
from cep.schema.time_literals import time_for_people
from spark_runtime.event_time.done import Done
from spark_runtime.pipeline.approval import FILE as APPROVED
from spark_runtime.pipeline.approval import Approval, approval_of
from spark_runtime.pipeline.cause import cause_of
from spark_runtime.pipeline.checkpoint import (
    Checkpoint,
    last_committed,
    last_done,
    planned,
    read_checkpoint,
    rules_after,
)
from spark_runtime.pipeline.failures import as_cep_error
from spark_runtime.pipeline.generations import (
    Cause,
    Filled,
    Standing,
    cannot_continue,
    change_lines,
    numbers,
    renewed,
    require_continues,
    unreported,
    write_generation,
)
from spark_runtime.pipeline.made import Pipeline, Reload
from spark_runtime.pipeline.missing import take_up_fill
from spark_runtime.pipeline.pipeline_file import load_pipeline
from spark_runtime.pipeline.prepared import FOLDER as BACKFILL
from spark_runtime.pipeline.prepared import forget, take_up, waiting_fill, warm_of
from spark_runtime.pipeline.stored_rules import StoredRules
from spark_runtime.pipeline.watched_files import WatchedFiles
from spark_runtime.state.changing import ChangedRules
from spark_runtime.storage.checkpoint_files import CheckpointFiles

LOOK_SECONDS = 1.0
"""How often the files of rules, and an approval that is missing, are examined."""


@dataclass(frozen=True)
class RuleTurn:
    """A pipeline with the rules of one generation.

    `rules`: the rules as stored in the checkpoint. `change`: the state that they take over in their first
    micro-batch, if that is not computed yet.
    """

    pipeline: Pipeline
    rules: StoredRules
    change: ChangedRules | None = None


@dataclass(frozen=True)
class Candidate:
    """Rules that will follow others, whose lateness is `lateness_us`.

    `fills`: they are the same rules, and see what they missed.
    """

    pipeline: Pipeline
    rules: StoredRules
    changes: Changes
    lateness_us: int = 0
    fills: bool = False

    @cached_property
    def is_only_words(self) -> bool:
        """Whether no state changes its meaning."""
        return self.changes.keeps_fingerprints and not self.changes.inputs

    @property
    def is_same(self) -> bool:
        """Whether the rules have the same meaning and the same words."""
        return self.is_only_words and {Verdict.SAME}.issuperset(self.changes.verdicts.values())

    def lines(self) -> Iterator[str]:
        """Return lines about the rules that are not the same (`change_lines`)."""
        return change_lines(self.changes, self.lateness_us)


def candidate(before: StoredRules, rules_before: RuleSet, now: Pipeline) -> Candidate:
    """Return the rules of a pipeline as those that will follow the rules `before`."""
    stored = StoredRules.of(now.texts, now.rules)
    changes = changes_of(rules_before.programs, now.rules.programs, has_corrections=stored.has_corrections)
    return Candidate(now, stored, changes, rules_before.lateness_us)


def proposed(files: CheckpointFiles, pipeline: Pipeline) -> tuple[StoredRules, Candidate]:
    """Return the rules in the checkpoint of a pipeline, and those in its file, which will follow.

    Raises StateError: the stored state cannot continue with them (E0701, E0649), or there is no checkpoint
    (E0705).
    """
    checkpoint, _ = read_checkpoint(files, pipeline.checkpoint)
    before = rules_after(checkpoint, last_committed(checkpoint)).latest.rules
    before.require_same_kind(has_corrections=pipeline.rules.corrections is not None)
    found = candidate(before, compiled(before, pipeline), pipeline)
    require_continues(found.changes)
    _require_no_new_tables(found)
    return before, found


def compiled(stored: StoredRules, like: Pipeline) -> RuleSet:
    """Return stored rules, compiled for a pipeline.

    Raises StateError (E0701): this version compiles the texts to different rules.
    """
    rules = compile_texts(stored.texts, stored.streams).rule_set.with_corrections(like.rules.corrections)
    again = StoredRules.of(stored.texts, rules)
    if again.fingerprints != stored.fingerprints:
        raise cannot_continue(
            f"this version of spark-cep reads the rules of the checkpoint as others: "
            f"{differences(stored.programs, again.programs)}",
            "change the rules with the version that wrote the checkpoint, then install this one",
        )
    rules = rules.telling_version() if like.rules.tells_version else rules
    return rules.telling_end() if like.end_waits_after_us is not None else rules


class Reloading:
    """The rules of a running stream.

    - `pipeline`: the pipeline with the rules that its file names.
    - `say`: is called with each message.
    - `only_spark`: returns the streams whose sources only Spark can read.
    - `load`: reads the pipeline file again, with the same trust as before.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        pipeline: Pipeline,
        say: Callable[[str], None],
        only_spark: Callable[[], Sequence[str]],
        load: Callable[[], Pipeline] | None = None,
    ) -> None:
        self._checkpoint = checkpoint
        self._files = checkpoint.files
        self._pipeline = pipeline
        self._say = say
        self._only_spark = only_spark
        self._load = partial(load_pipeline, pipeline.file) if load is None else load
        self._standing = rules_after(checkpoint, self._done.batch)
        self._next: Candidate | None = None
        self._waits: Candidate | None = None  # for its approval
        self._watched: WatchedFiles | None = None
        self._looked_s = float("-inf")
        self._has_told = False  # that the approval cannot be read
        if not numbers(self._files):
            is_first = self._done.batch < 0 and not self._standing.is_pending
            cause = cause_of(self._standing.latest.rules.texts) if is_first else Cause()
            first = replace(self._standing.latest, cause=cause)
            write_generation(self._files, first)
            self._standing = Standing(first, first)
        if self._files.names(BACKFILL) and not self._standing.is_pending:
            forget(self._files, self._standing.latest.batch)
        self._passed_fill = ""  # the id of what is prepared to fill gaps, once it was taken or refused
        self.turn = self._first()
        self._look_for_fill()

    @property
    def _done(self) -> Done:
        return last_done(self._checkpoint, is_live=self._pipeline.is_live)

    # ------------------------------------------------------------ at the start

    def _first(self) -> RuleTurn:
        """Return the rules that run first; `leaves` says whether others are to follow at once."""
        latest = self._standing.latest.rules
        wanted = StoredRules.of(self._pipeline.texts, self._pipeline.rules)
        if wanted.reads(latest):
            self._take_words(latest, wanted)
            return RuleTurn(self._pipeline, self._standing.latest.rules, self._pending())
        rules = compiled(latest, self._pipeline)
        found = candidate(latest, rules, self._pipeline)
        self._require(found)
        self._consider(found, latest)
        return RuleTurn(self._pipeline.with_rules(rules, latest.texts), latest, self._pending())

    def _take_words(self, latest: StoredRules, wanted: StoredRules) -> None:
        """Record that the rules have other texts, which mean the same."""
        if wanted.version != latest.version and not self._standing.is_pending:
            found = candidate(latest, compiled(latest, self._pipeline), self._pipeline)
            if not found.is_same:
                self._record(found, None)
                return
        self._standing = renewed(self._files, self._standing, wanted)

    def _pending(self) -> ChangedRules | None:
        """Return the change whose micro-batch a killed run did not finish."""
        stored, latest = self._standing.stored, self._standing.latest
        is_fill = self._standing.is_pending and bool(latest.filled)
        if latest.rules.reads(stored.rules) and not is_fill:
            return None
        before = compiled(stored.rules, self._pipeline)
        warm = warm_of(self._checkpoint.path, latest.batch, latest.warm, latest.from_us)
        return ChangedRules(before, _begins_us(latest.begins_us), latest.batch, warm)

    def _require(self, found: Candidate) -> None:
        """Raise StateError (E0701) unless the stored state can continue with rules."""
        require_continues(found.changes)
        _require_no_new_tables(found)
        self._require_gone(found)
        for stream in self._only_spark():
            raise cannot_continue(
                f"only Spark reads the source of stream `{stream}`",
                "read the source from a disk, or Kafka without `via: spark`; or start with an empty "
                "checkpoint directory",
            )

    def _require_gone(self, found: Candidate) -> None:
        """Raise StateError (E0701) if the rules before still need an input that is gone."""
        gone = {change.name for change in found.changes.inputs if change.verdict is Verdict.GONE}
        before = self._standing.latest.rules.streams
        plan = planned(self._checkpoint, self._done.batch + 1)
        read = set() if plan is None else {stream for share in plan.shares for stream, _ in share}
        for name in sorted(gone):
            if before[name].is_static:
                raise cannot_continue(
                    f"the static table `{name}` is gone",
                    "keep a rule that joins it, or start with an empty checkpoint directory",
                )
            if name in read:
                raise cannot_continue(
                    f"input `{name}` is gone, and a micro-batch that was not finished reads it",
                    "run the former pipeline file and rules once more, until a micro-batch is done",
                )

    def _consider(self, found: Candidate, before: StoredRules) -> None:
        """Let rules follow, now or when they are approved."""
        approval = self._approval(before, found.rules)
        if self._pipeline.reload is Reload.AFTER_APPROVAL and approval is None and not found.is_same:
            self._waits = found
            self._say(
                "warning: the rules have changed, and nobody has approved it: the run continues with the "
                "rules before\n"
                + "\n".join(found.lines())
                + f"\nhelp: cep approve {self._pipeline.file}{self._options}"
            )
            return
        self._waits, self._next = None, found

    @property
    def _options(self) -> str:
        """The options of `cep approve` with which it approves what this run proposes."""
        return "".join(f" --shadow {name}" for name in self._pipeline.shadow_rules)

    def _approval(self, before: StoredRules, now: StoredRules) -> Approval | None:
        """Return the approval of a change, or None; report once why it cannot be read.

        A file of another user, or storage that is gone for a moment, does not end a run.
        """
        try:
            found = approval_of(self._files, before, now)
        except (OSError, StateError, Py4JError) as error:
            cause = error.__cause__ if isinstance(error, StateError) else error
            if not self._has_told:
                why = cause.strerror if isinstance(cause, OSError) else as_cep_error(error)
                self._say(
                    f"warning: `{APPROVED}` in the checkpoint cannot be read, so nothing is approved: {why}"
                )
            self._has_told = True
            return None
        self._has_told = False
        return found

    # ------------------------------------------------------------ while it runs

    @property
    def generation(self) -> int:
        """The number of the rules that run."""
        return self._standing.latest.number

    @property
    def leaves(self) -> bool:
        """Whether other rules will follow those that run."""
        return self._next is not None

    def look(self, now_s: float) -> bool:
        """Look for changed rules, if it is time; return whether others will follow. `now_s`: a clock.

        Rules that cannot be used are reported once, and the current ones continue.
        """
        if self.leaves or self._pipeline.reload is Reload.NEVER or not self._pipeline.is_live:
            return self.leaves
        if now_s - self._looked_s < LOOK_SECONDS:
            return False
        self._looked_s = now_s
        if self._watched is None:
            self._watched = WatchedFiles(self._pipeline.rule_paths)
        elif self._watched.have_changed(now_s):
            self._waits = None
            try:
                self._compare(self._load())
            except CepError as error:
                self._say(f"warning: the changed rules are not used, those before continue\n{error}")
        elif self._waits is not None and self._approval(self.turn.rules, self._waits.rules):
            self._waits, self._next = None, self._waits
        self._look_for_fill()
        return self.leaves

    def _look_for_fill(self) -> None:
        """Let the rules begin again with a past that is prepared to fill gaps."""
        if self.leaves:
            return
        waiting = waiting_fill(self._checkpoint.path, self._standing.latest.batch)
        if waiting is not None and waiting.id != self._passed_fill:
            self._passed_fill = waiting.id
            same = self.turn.pipeline.rules.programs
            changes = changes_of(same, same)
            self._next = Candidate(self.turn.pipeline, self.turn.rules, changes, fills=True)

    def _compare(self, now: Pipeline) -> None:
        found = candidate(self.turn.rules, self.turn.pipeline.rules, now)
        if _without_rules(now) != _without_rules(self._pipeline):
            self._say(
                f"warning: `{now.file}` has changed in more than its rules: nothing of it is used before "
                "the next start"
            )
        elif not found.is_same:
            self._require(found)
            programs = now.rules.programs
            if not is_warm(any(program.windows for program in programs)) and missing(programs):
                warm_up(None, programs, 1)
            self._consider(found, self.turn.rules)

    def following(self) -> RuleTurn | None:
        """Return the rules that follow after the last micro-batch of the previous ones, if any."""
        found, self._next = self._next, None
        if found is None:
            return None
        done = self._done
        change = None
        if found.fills or not found.is_only_words or not found.rules.reads(self.turn.rules):
            begins_us = _begins_us(done.reached.read_until_us)
            change = ChangedRules(self.turn.pipeline.rules, begins_us, done.batch + 1)
        self._found = found
        return RuleTurn(found.pipeline, found.rules, change)

    def take(self, turn: RuleTurn) -> RuleTurn:
        """Record that the rules that `following` returned compute the next micro-batch.

        Return these rules with the past with which new ones begin. Raises StateError or InputError as
        `take_up` does; then nothing is recorded.
        """
        done, found = self._done, self._found
        if found.fills and turn.change is not None:
            warm, filled = take_up_fill(self._checkpoint, done, found.pipeline, self._say)
            turn = replace(turn, change=replace(turn.change, warm=warm))
            self._standing = Standing(self._standing.latest, self._standing.latest)
            self._record(found, turn.change, filled)
            self.turn = turn
            return turn
        if turn.change is not None:
            warm = take_up(self._checkpoint, done, found.pipeline, found.changes, self._say)
            turn = replace(turn, change=replace(turn.change, warm=warm))
        read_until_us = done.reached.read_until_us
        self._standing = Standing(self._standing.latest, self._standing.latest)
        self._record(found, turn.change)
        said = [
            f"the rules have changed, from micro-batch {done.batch + 1:,} on:",
            *change_lines(found.changes),
        ]
        begins = {name for name, verdict in found.changes.verdicts.items() if verdict in BEGINNING}
        warm_rules = () if turn.change is None else turn.change.warm_rules
        if begins.difference(warm_rules) and read_until_us is not None:
            said.append(f"new and changed rules see the events after {time_for_people(read_until_us)}")
        if (hole_us := self._standing.latest.hole_us) is not None:
            after, until = map(time_for_people, hole_us)
            said.append(unreported(f"after {after}, up to {until},"))
        if not found.is_same:  # rules may only have another order
            self._say("\n".join(said))
        self.turn = turn
        return turn

    def refuse(self, error: CepError) -> RuleTurn:
        """Return the previous rules, which continue because those that should follow cannot."""
        what = "the gaps are not filled" if self._found.fills else "the changed rules are not used"
        self._say(f"warning: {what}, those before continue\n{error}")
        self.turn = replace(self.turn, change=None)
        return self.turn

    def _record(
        self,
        found: Candidate,
        change: ChangedRules | None = None,
        filled: tuple[Filled, ...] = (),
    ) -> None:
        before = self._standing.latest
        approval = None if filled else self._approval(before.rules, found.rules)
        cause = cause_of(found.rules.texts, approval)
        batch = self._done.batch + 1
        latest = before.following(found.rules, batch, self._done.reached, found.changes, cause)
        if change is not None and change.warm is not None:
            warm = tuple(sorted(change.warm_rules))
            latest = replace(latest, warm=warm, from_us=change.from_us, filled=filled)
        write_generation(self._files, latest)
        self._standing = Standing(before, latest)


def _require_no_new_tables(found: Candidate) -> None:
    """Raise StateError (E0701) if a table would begin without its versions so far, which would be late."""
    for changed in found.changes.inputs:
        stream = found.rules.streams.get(changed.name)
        if changed.verdict is Verdict.NEW and stream and stream.table is not None and not stream.is_static:
            raise cannot_continue(
                f"table `{changed.name}` is new, and its versions so far would be late",
                "start with an empty checkpoint directory",
            )


def _begins_us(read_until_us: int | None) -> int:
    return START_OF_TIME_US if read_until_us is None else read_until_us


_NO_RULES = RuleSet(())


def _without_rules(pipeline: Pipeline) -> tuple[Pipeline, Corrections | None]:
    """Return a pipeline without its rules, and how it corrects matches. These can be compared; a rule set
    equals only itself.
    """
    bare = replace(pipeline, rules=_NO_RULES, texts=(), warnings=(), tables=(), rule_paths=())
    return bare, pipeline.rules.corrections
