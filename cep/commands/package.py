"""`cep package` writes a pipeline to one archive for a cluster."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path

import click

from cep.commands.options import quiet_option
from cep.commands.outputs import refuse_overwriting
from cep.commands.progress_line import progress_line
from cep.commands.warm import CompilingLines, compile_engine, n_usable_cores
from cep.jit.processors import HOST, PROCESSORS

_TEXT = "compiling the engine for {}: about four minutes of processor time"


def _names(context: click.Context, parameter: click.Parameter, text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in names:
        if name not in (HOST, *PROCESSORS):
            raise click.BadParameter(f"`{name}` is none of {', '.join((HOST, *PROCESSORS))}.")
    return names


def kernels(processors: tuple[str, ...], quiet: bool) -> Iterator[tuple[str, bytes]]:
    """Compile kernels that are missing, and yield the path in ``cep.jit`` and the content of each."""
    from cep.engine.warm import needed
    from cep.jit.for_processors import files

    line = progress_line(quiet, None)
    if HOST in processors:
        compile_engine(line, quiet)
    text = _TEXT.format(", ".join(processors))
    lines = cache(partial(CompilingLines, line, time.monotonic, text))  # it says the text: only if needed

    def show(done: int, of: int) -> None:
        if not quiet:
            lines().show(done, of)

    yield from files(needed(), processors, n_usable_cores(), show)
    line.clear()


@click.command()
@click.argument("pipeline", type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", "archive", type=click.Path(path_type=Path), help="The archive; by default PIPELINE.zip."
)
@click.option(
    "--cpu",
    "processors",
    default="x86-64-v3,aarch64",
    show_default=True,
    callback=_names,
    help=f"The processors of the cluster, for which the archive has the compiled engine: "
    f"{', '.join(PROCESSORS)}, or {HOST} for machines like this one.",
)
@click.option(
    "--packages", "with_packages", is_flag=True, help="Include all packages of this environment but Spark."
)
@quiet_option
def package(
    pipeline: Path, archive: Path | None, processors: tuple[str, ...], with_packages: bool, quiet: bool
) -> None:
    """Write a PIPELINE file, all that it needs and the compiled engine to one archive for `spark-submit`."""
    from spark_runtime.pipeline.package import files_of_job, write_package

    archive = archive or Path(f"{pipeline.stem}.zip")
    refuse_overwriting([archive], files_of_job(pipeline).values())
    write_package(pipeline, archive, kernels(processors, quiet), with_packages=with_packages)
    if quiet:
        return
    size = archive.stat().st_size / 1e6
    name = shlex.quote(str(archive))
    options = f" --archives {name}#job --conf spark.executorEnv.PYTHONPATH=job/packages" * with_packages
    click.echo(
        f"wrote {archive} ({size:.1f} MB)\n"
        f"  unzip -o {name} main.py\n"
        f"  spark-submit --py-files {name}{options} main.py"
    )
