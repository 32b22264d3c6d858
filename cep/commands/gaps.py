"""`cep gaps` shows what rules did not see."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from cep.commands.approve import files_of
from cep.commands.group import tell
from cep.commands.options import AS_JSON
from cep.commands.state import format_option, show_table
from cep.counts import amount

if TYPE_CHECKING:
    from spark_runtime.pipeline.gaps import Gap

_SHOWN = 3
"""Rules that a line names; it counts the others."""


@click.command()
@click.argument("place", metavar="CHECKPOINT|PIPELINE")
@click.option("--rule", metavar="NAME", help="Only what this rule did not see.")
@format_option
def gaps(place: str, rule: str | None, output_format: str) -> None:
    """Show what the rules of a stream did not see, and why: by rule, stream and event time.

    The stream is named by its CHECKPOINT or its PIPELINE file, and may be running.
    """
    from spark_runtime.pipeline.gaps import all_gaps, names_of_rules
    from spark_runtime.pipeline.pipeline_file import load_pipeline
    from spark_runtime.storage.checkpoint_files import is_file_there

    checkpoint = place
    if is_file_there(place):
        made = load_pipeline(place)
        if not made.is_stream:
            tell(f"`{place}` has no ledger of gaps: it is a batch, which reads all events", err=True)
            return
        checkpoint = made.checkpoint
    files = files_of(checkpoint)
    found = all_gaps(files, checkpoint)
    if rule is not None:
        known = names_of_rules(files, checkpoint)
        if rule not in known:
            raise click.BadParameter(
                f"no rule `{rule}` ran on it, but {', '.join(known)}", param_hint="'--rule'"
            )
        found = [gap for gap in found if rule in gap.rules]
    if AS_JSON[output_format]:
        for gap in found:
            click.echo(json.dumps(_as_json(gap), ensure_ascii=False))
    elif found:
        rows = [_row(gap, rule) for gap in found]
        show_table(list(rows[0]), rows)
    else:
        tell("no gaps")


def _as_json(gap: Gap) -> dict[str, Any]:
    return {
        "kind": gap.loss,
        "rules": list(gap.rules),
        "streams": list(gap.streams),
        "from": _time(gap.first_us),
        "to": _time(gap.last_us),
        "count": gap.n,
        "filled": gap.filled and {"at": gap.filled.time, "matches": gap.filled.matches},
    }


def _row(gap: Gap, rule: str | None) -> dict[str, Any]:
    rules = gap.rules if rule is None else (rule,)
    row = {"rule": listed(rules), **_as_json(gap), "streams": listed(gap.streams)}
    if gap.filled is not None:
        row["filled"] = f"{gap.filled.time}, {amount(gap.filled.matches, 'match', 'matches')}"
    del row["rules"]
    return row


def listed(names: Sequence[str]) -> str | None:
    """Return the first names, and how many more there are; None: there are no names."""
    more = [f"{len(names) - _SHOWN:,} more"] if len(names) > _SHOWN else []
    return ", ".join([*names[:_SHOWN], *more]) or None


def _time(us: int | None) -> str | None:
    from cep.schema.time_literals import time_for_people

    return None if us is None else time_for_people(us)
