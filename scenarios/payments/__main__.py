"""Start servers, run a shop and its rules, and report the alerts: ``python -m scenarios.payments``."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from types import FrameType

import click
from rich.console import Console

from cep.commands.group import EXIT_INTERRUPTED, ErrorReportingGroup
from cep.commands.run import compile_for
from scenarios.payments.events import HOUR_US, NOW_US, Login, Pen, write_traffic
from scenarios.payments.score import Alert, alert_of, arrivals_table, do_agree, score, score_table
from scenarios.payments.shop import Shop, running_shop
from scenarios.payments.stories import Story, tell_stories
from scenarios.servers.process import ServerError

PIPELINE = Path(__file__).with_name("pipeline.yaml")
BROKEN = ("not json", '{"login_id": 1', '{"login_id": 2, "at": "yesterday", "account": "account-1"}')
MIN_ORDERS = 100


@click.group(cls=ErrorReportingGroup, invoke_without_command=True, subcommand_metavar="")
@click.option("--orders", type=click.IntRange(min=MIN_ORDERS), default=5_000, show_default=True)
@click.option("--seed", type=click.IntRange(min=0), default=7, show_default=True)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("out/payments"),
    show_default=True,
)
@click.option("--debug", is_flag=True, help="Show the traceback of an internal error.")
def main(orders: int, seed: int, out: Path, debug: bool) -> None:
    """Run orders, payments and logins of a shop through PostgreSQL and Kafka, and read the alerts."""
    console = Console(highlight=False, soft_wrap=True)
    rng = Random(seed)  # noqa: S311 - data of a story
    pen = Pen(rng)
    write_traffic(pen, orders)
    stories = tell_stories(pen, orders)
    console.print(
        f"{len(pen.changes):,} changes of orders and payments, {len(pen.logins):,} logins, "
        f"{len(stories):,} stories (seed {seed})"
    )
    try:
        with _ended_like_ctrl_c(), running_shop() as shop:
            console.print(
                f"started: Kafka at {shop.kafka.address}, PostgreSQL at 127.0.0.1:{shop.postgres.port}, "
                f"a webhook at 127.0.0.1:{shop.web.port}"
            )
            if not _run(shop, pen, out, console):
                click.get_current_context().exit(EXIT_INTERRUPTED)
            _look(shop, stories, console)
    except ServerError as error:
        raise click.ClickException(str(error)) from error
    console.print("every server has ended")


@contextmanager
def _ended_like_ctrl_c() -> Iterator[None]:
    """Make SIGTERM act like Ctrl-C: the pipeline stops, then the servers end."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        # This calls the handler instead of sending a second signal, which would end this process before its
        # servers if native code has temporarily removed the handler.
        handler = signal.getsignal(signal.SIGINT)
        (handler if callable(handler) else signal.default_int_handler)(signal.SIGINT, frame)

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _run(shop: Shop, pen: Pen, out: Path, console: Console) -> bool:
    """Write the past, run the pipeline, write the rest, run it to its end; return whether it succeeded."""
    from spark_runtime import run_pipeline

    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    past = [change for change in pen.changes if change.at_us < NOW_US]
    logins = [login for login in pen.logins if login.at_us < NOW_US]
    shop.write(pen.rng, past, logins)
    console.print(f"first run: the tables as they are after {len(past):,} changes, {len(logins):,} logins")
    pipeline = shop.placed(PIPELINE, out, finishes=False)
    compile_for(pipeline)
    if run_pipeline(pipeline).was_stopped:
        return False
    rest = [change for change in pen.changes if change.at_us >= NOW_US]
    logins = [login for login in pen.logins if login.at_us >= NOW_US]
    shop.write(pen.rng, rest, logins)
    late = [Login(NOW_US - 12 * HOUR_US, -idx, "account-1", True, "10.0.0.1") for idx in range(1, 6)]
    shop.write(pen.rng, [], late)
    shop.send("logins", [("account-1", value) for value in BROKEN])
    console.print(
        f"second run: {len(rest):,} changes, {len(logins):,} logins, {len(late)} that come 12 hours late, "
        f"{len(BROKEN)} broken ones"
    )
    return not run_pipeline(shop.placed(PIPELINE, out, finishes=True)).was_stopped


def _look(shop: Shop, stories: list[Story], console: Console) -> None:
    """Print the alerts of each place; raise ClickException if they differ or are wrong."""
    posted = {request.headers["idempotency-key"]: request.rows[0] for request in shop.web.requests}
    places = {
        "topic alerts": [_alert(row) for row in shop.in_topic("alerts")],
        "table alerts": [
            alert_of(*row) for row in shop.rows("SELECT rule, match_id, order_id, account FROM alerts")
        ],
        "webhook": [_alert(row) for row in posted.values()],
    }
    console.print(arrivals_table(places))
    [(n_late,)] = shop.rows("SELECT count(*) FROM late_logins")
    n_dead = len(shop.in_topic("dead_letters"))
    console.print(f"late logins in a table: {n_late}; dead letters in a topic: {n_dead}")
    scores = score(places["table alerts"], stories)
    console.print(score_table(scores))
    if not do_agree(places):
        raise click.ClickException("the topic, the table and the webhook do not have the same alerts")
    if not all(found.is_perfect for found in scores):
        raise click.ClickException("the alerts are not those of the stories")


def _alert(row: dict[str, object]) -> Alert:
    order, account = row.get("order_id"), row.get("account")
    return alert_of(
        str(row["rule"]),
        str(row["match_id"]),
        order if isinstance(order, int) else None,
        account if isinstance(account, str) else None,
    )


if __name__ == "__main__":
    main()
