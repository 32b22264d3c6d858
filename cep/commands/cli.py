"""The command `cep`. Each of its verbs has one module.

Only click is loaded at the start, then the module of the verb, which loads the modules that it needs. So a
verb starts fast, and a check loads neither the engine nor Spark.
"""

from __future__ import annotations

import importlib

import click

from cep.commands.group import MEANING_OF_EXIT, ErrorReportingGroup

_MODULES = {
    name: f"cep.commands.{name}"
    for name in (
        "approve",
        "backtest",
        "backfill",
        "check",
        "completion",
        "diff",
        "doctor",
        "explain",
        "fmt",
        "gaps",
        "init",
        "lint",
        "lsp",
        "man",
        "match",
        "mcp",
        "new",
        "package",
        "plot",
        "profile",
        "replay",
        "rules",
        "run",
        "savepoint",
        "schema",
        "scorecard",
        "test",
        "tune",
    )
} | {
    "history": "cep.commands.generations",
    "restore-rules": "cep.commands.generations",
    "restore": "cep.commands.savepoint",
    "spool": "cep.commands.spool.verbs",
    "state": "cep.commands.state",
    "warm": "cep.commands.warm",
    "why": "cep.commands.why",
}

EXAMPLES = {
    "approve": "cep approve pipeline.yaml --by ann",
    "backtest": "cep backtest rules --input events/transactions.jsonl",
    "backfill": "cep backfill pipeline.yaml --from 2026-01-01",
    "check": "cep check rules",
    "completion": "cep completion bash",
    "diff": "cep diff rules new_rules",
    "doctor": "cep doctor pipeline.yaml",
    "explain": "cep explain rules",
    "fmt": "cep fmt rules --check",
    "gaps": "cep gaps pipeline.yaml --rule card_testing",
    "history": "cep history out/checkpoint",
    "init": "cep init alerts",
    "lint": "cep lint rules",
    "lsp": "cep lsp --stdio",
    "man": "cep man",
    "match": "cep match rules --input events/transactions.jsonl",
    "mcp": "cep mcp --root rules",
    "new": "cep new rules/many_payments --template count",
    "package": "cep package pipeline.yaml -o job.zip",
    "plot": "cep plot rules --output rules.svg",
    "profile": "cep profile transactions=events/transactions.jsonl",
    "restore-rules": "cep restore-rules out/checkpoint 0",
    "replay": "cep replay pipeline.yaml --into postgres",
    "restore": "cep restore saved/monday out/checkpoint",
    "rules": "cep rules copy card_testing --to mine",
    "run": "cep run pipeline.yaml",
    "savepoint": "cep savepoint out/checkpoint saved/monday",
    "schema": "cep schema streams",
    "scorecard": "cep scorecard rules --input events/transactions.jsonl",
    "spool": "cep spool http --into inbox",
    "state": "cep state ls out/checkpoint",
    "test": "cep test rules",
    "tune": "cep tune rules --alerts-per-day 5 --input events/transactions.jsonl",
    "warm": "cep warm",
    "why": "cep why rules --key c2 --input events/transactions.jsonl",
}
"""One use of each verb, with the files that `cep init` writes."""


class _Verbs(ErrorReportingGroup):
    """The verbs, each loaded when it is requested."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all verbs."""
        return sorted(_MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a verb; None: no verb has this name."""
        if cmd_name not in _MODULES:
            return None
        verb: click.Command = getattr(importlib.import_module(_MODULES[cmd_name]), cmd_name.replace("-", "_"))
        if cmd_name in EXAMPLES:
            verb.epilog = f"Example: {EXAMPLES[cmd_name]}"
        return verb


@click.group(
    cls=_Verbs,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=f"Exit codes: {', '.join(f'{code} {meaning}' for code, meaning in MEANING_OF_EXIT.items())}.",
)
@click.version_option(package_name="spark-cep", prog_name="cep")
@click.option("--debug", is_flag=True, help="Show the traceback of an internal error.")
def main(debug: bool) -> None:
    """Event pattern rules: check them, run them over files, run them on Spark."""
