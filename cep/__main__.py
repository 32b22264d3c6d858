"""The process of the command `cep`, also as ``python -m cep``."""

import sys

_WITHOUT_PANDAS = (
    *("check", "completion", "diff", "doctor", "explain", "fmt", "history", "init", "lint", "man"),
    *("match", "new", "plot", "profile", "rules", "schema", "state", "test", "why"),
)
"""Verbs that end soon, need no pandas and start no Spark, unless a checkpoint is on remote storage."""

_ALSO_ON_SPARK = ("backtest", "scorecard", "tune")
"""Verbs for which the same is true without `--spark`."""


def start() -> None:
    """Run the command given by the process's arguments."""
    command = next((argument for argument in sys.argv[1:] if not argument.startswith("-")), None)
    if command in _WITHOUT_PANDAS or (command in _ALSO_ON_SPARK and "--spark" not in sys.argv):
        from cep.commands.small_start import start_small

        start_small()
    from cep.commands.cli import main

    main(prog_name="cep")


if __name__ == "__main__":
    start()
