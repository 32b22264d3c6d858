"""The command `cep`. Each of its verbs has one module.

Only click is loaded at the start, and each verb loads the modules that it needs. So `cep --help` starts fast,
and a check loads neither the engine nor Spark.
"""

from __future__ import annotations

import click

from cep.commands.check import check
from cep.commands.completion import completion
from cep.commands.doctor import doctor
from cep.commands.explain import explain
from cep.commands.group import ErrorReportingGroup
from cep.commands.match import match
from cep.commands.package import package
from cep.commands.rules import rules
from cep.commands.run import run
from cep.commands.savepoint import restore, savepoint
from cep.commands.spool.verbs import spool
from cep.commands.state import state
from cep.commands.warm import warm


@click.group(
    cls=ErrorReportingGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 done, 1 problems in your files, 2 wrong usage, 3 done, but not every file was read "
    "as it is, 130 interrupted.",
)
@click.version_option(package_name="spark-cep", prog_name="cep")
@click.option("--debug", is_flag=True, help="Show the traceback of an internal error.")
def main(debug: bool) -> None:
    """Event pattern rules: check them, run them over files, run them on Spark."""


for verb in (
    check,
    match,
    explain,
    run,
    package,
    doctor,
    spool,
    state,
    savepoint,
    restore,
    rules,
    warm,
    completion,
):
    main.add_command(verb)
