"""``python -m tests.bench.windows``: what the columns of windows cost, beside pandas and a no-op.

Events are in order already, as the engine has them; to bring their columns into this order, and the results
back, is counted. A figure is the processor time of the process for an event, the least of some repeats. The
no-op is a compiled loop that reads the time and the value of each event and writes a result. pandas has
the same events in the same order, grouped by key.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import click
import numba
import numpy as np
import pandas as pd
import pyarrow as pa

from cep.arrays import I64
from cep.engine.order.ordering import OrderedEvents
from cep.engine.windows.windows import Windows
from cep.expression import Type
from cep.program.windows import Frame, Function, Window, WindowColumn
from tests.bench.figures import Figure, Target, report

SUMS, EXTREMES, SETS = Target(30, at_most=True), Target(80, at_most=True), Target(150, at_most=True)
FLAT = Target(1.3, at_most=True)
TARGETS = {
    Function.COUNT: SUMS,
    Function.SUM: SUMS,
    Function.AVG: SUMS,
    Function.MIN: EXTREMES,
    Function.MAX: EXTREMES,
    Function.STDDEV: EXTREMES,
    Function.DISTINCT: SETS,
    Function.SEEN: SETS,
    Function.PERCENTILE: None,
}
IN_PANDAS = {
    Function.COUNT: "count",
    Function.SUM: "sum",
    Function.AVG: "mean",
    Function.MIN: "min",
    Function.MAX: "max",
    Function.STDDEV: "std",
    Function.PERCENTILE: "median",
}
MEAN_US = 1_000
"""Between two events of the stream on average; a key has them further apart, by the number of keys."""

PER_WINDOW = 100
"""Events of a key in a window on average; a tenth of all of them, if that is less."""

PER_STEP, STEPS = 10, 720
"""Of windows that move in steps: events of a key in a step on average, as many steps as a month has hours."""


@numba.njit(cache=True)
def read_and_write(rows: I64, time_us: I64, values: I64, out: I64) -> None:
    """Do what every window must do."""
    for place in range(rows.shape[0]):
        out[rows[place]] = time_us[place] ^ values[rows[place]]


class Events:
    """Random events of some keys: amounts with cents.

    Parameters
    ----------
    n, n_keys
        How many.
    """

    def __init__(self, n: int, n_keys: int) -> None:
        draw = np.random.default_rng(7)
        codes = draw.integers(0, n_keys, n)
        time_us = np.sort(draw.integers(0, n * MEAN_US, n))
        rows = np.argsort(codes, kind="stable")
        keys, numbers = np.unique(codes[rows], return_inverse=True)
        self.n, self.n_keys = n, n_keys
        self.values = np.round(draw.lognormal(3, 1, n), 2)
        self.order = OrderedEvents(
            rows=rows,
            codes=numbers.astype(np.int32),
            time_us=time_us[rows],
            identity=np.zeros(n, np.uint64),
            keys=pa.array(keys),
            first_rows=np.zeros(len(keys), np.int64),
            n_duplicates=(0,),
        )

    def span_us(self, n_events: int) -> int:
        """Return a time in which a key has so many events."""
        return n_events * MEAN_US * self.n_keys

    def compute(self, function: Function, window: Window) -> Windows:
        """Compute a column of windows; return what is kept then."""
        column = WindowColumn(
            name="c",
            type=Type.DOUBLE,
            function=function,
            argument=None if function is Function.COUNT else "x",
            argument_type=Type.DOUBLE,
            window=window,
            parameter=0.5,
        )
        cells = self.values.view(np.int64)
        slots = np.arange(len(self.order.keys), dtype=np.int32)
        windows = Windows([column])
        windows.compute(
            self.order, slots, len(slots), self.n, lambda name: (cells, None), lambda place: np.zeros(0, bool)
        )
        return windows

    def frame(self) -> pd.DataFrame:
        """Return the events for pandas, in order."""
        rows = self.order.rows
        times = pd.to_datetime(self.order.time_us, unit="us")
        return pd.DataFrame({"key": self.order.codes, "x": self.values[rows]}, index=times)

    def no_op(self) -> None:
        """Read and write, nothing else."""
        out = np.empty(self.n, np.int64)
        read_and_write(self.order.rows, self.order.time_us, self.values.view(np.int64), out)


def least_ns(run: Callable[[], object], n: int, repeats: int) -> float:
    """Return the least processor time of some runs, in nanoseconds for each of `n` events."""
    run()
    found = []
    for _ in range(repeats):
        start = time.process_time()
        run()
        found.append(time.process_time() - start)
    return min(found) / n * 1e9


def functions(events: Events, repeats: int) -> list[Figure]:
    """Return the figures of all functions over a window of time."""
    no_op = least_ns(events.no_op, events.n, repeats)
    per_window = min(PER_WINDOW, events.n // events.n_keys // 10)
    window = Window(Frame.TIME, events.span_us(per_window))
    figures = []
    for function, target in TARGETS.items():
        case = f"{function.name}, {events.n_keys:,} keys"
        cost = least_ns(lambda f=function: events.compute(f, window), events.n, repeats)  # type: ignore[misc]
        figures.append(Figure(f"window of {per_window} events", case, cost, "ns/event", no_op, target))
        if function in IN_PANDAS:
            rolling = events.frame().groupby("key")["x"].rolling(pd.Timedelta(window.length, "us"))
            cost = least_ns(getattr(rolling, IN_PANDAS[function]), events.n, 1)
            figures.append(Figure("pandas, rolling", case, cost, "ns/event", no_op))
    return figures


def frames(events: Events, repeats: int) -> list[Figure]:
    """Return what the average costs over all kinds of windows."""
    windows = {
        "LAST 100 EVENTS": Window(Frame.EVENTS, PER_WINDOW),
        "PREVIOUS 100 EVENTS": Window(Frame.EVENTS, PER_WINDOW, previous=True),
        "TUMBLING": Window(Frame.TUMBLING, events.span_us(PER_WINDOW)),
        "TUMBLING, a zone": Window(Frame.TUMBLING, 86_400_000_000, zone="Europe/Berlin"),
        "SESSION": Window(Frame.SESSION, events.span_us(3)),
        "ALL": Window(Frame.ALL),
    }
    return [
        Figure(
            name,
            f"AVG, {events.n_keys:,} keys",
            least_ns(lambda w=window: events.compute(Function.AVG, w), events.n, repeats),  # type: ignore[misc]
            "ns/event",
            target=SUMS,
        )
        for name, window in windows.items()
    ]


def lengths(events: Events, repeats: int, chosen: Sequence[Function]) -> list[Figure]:
    """Return what an event costs when the window is 10 and 100 times as long, to the shortest."""
    figures = []
    for function in chosen:
        first = 0.0
        for factor in (1, 10, 100):
            window = Window(Frame.TIME, events.span_us(10 * factor))
            cost = least_ns(lambda f=function, w=window: events.compute(f, w), events.n, repeats)  # type: ignore[misc]
            first = first or cost
            case = f"{function.name}, {events.n_keys:,} keys"
            target = FLAT if factor > 1 else None
            figures.append(
                Figure(f"window x{factor}, to the shortest", case, cost / first, "times", target=target)
            )
    return figures


def steps(events: Events, repeats: int) -> list[Figure]:
    """Return what a long window costs, and what a key keeps of it, with each event and by steps."""
    step_us = events.span_us(PER_STEP)
    n_steps = min(STEPS, events.n // events.n_keys // PER_STEP * 3 // 4)
    windows = {
        f"LAST {n_steps} HOURS": Window(Frame.TIME, n_steps * step_us),
        f"LAST {n_steps} HOURS BY 1 HOUR": Window(Frame.TIME, n_steps * step_us, step_us=step_us),
    }
    figures = []
    for function, target in TARGETS.items():
        for name, window in windows.items():
            if function is Function.PERCENTILE:
                continue
            case = f"{function.name}, {events.n_keys:,} keys, {PER_STEP} events an hour"
            cost = least_ns(lambda f=function, w=window: events.compute(f, w), events.n, repeats)  # type: ignore[misc]
            kept = 16 * events.compute(function, window).n_entries / events.n_keys
            figures.append(Figure(name, case, cost, "ns/event", target=target))
            figures.append(Figure(name, case, kept, "bytes/key"))
    return figures


def small_batches(n_keys: int, n_batches: int) -> list[Figure]:
    """Return what an event of a long window costs if a key has two in a batch, with each and by steps."""
    step_us, slots = PER_STEP * MEAN_US, np.arange(n_keys, dtype=np.int32)
    values = np.round(np.random.default_rng(7).lognormal(3, 1, n_keys * PER_STEP * STEPS), 2).view(np.int64)

    def push(windows: Windows, first: int, per_key: int) -> None:
        n = per_key * n_keys
        order = OrderedEvents(
            rows=np.arange(n),
            codes=np.repeat(slots, per_key),
            time_us=np.tile(np.arange(first, first + per_key) * MEAN_US, n_keys),
            identity=np.zeros(n, np.uint64),
            keys=pa.array(slots),
            first_rows=np.zeros(n_keys, np.int64),
            n_duplicates=(0,),
        )
        cells = values[:n]
        windows.compute(order, slots, n_keys, n, lambda name: (cells, None), lambda place: np.zeros(0, bool))

    figures = []
    for function in (Function.COUNT, Function.SUM, Function.MAX, Function.STDDEV):
        for name, step in ((f"LAST {STEPS} HOURS", 0), (f"LAST {STEPS} HOURS BY 1 HOUR", step_us)):
            window = Window(Frame.TIME, STEPS * step_us, step_us=step)
            windows = Windows([WindowColumn("c", Type.DOUBLE, function, "x", Type.DOUBLE, window)])
            push(windows, 0, PER_STEP * STEPS)
            start = time.process_time()
            for number in range(n_batches):
                push(windows, PER_STEP * STEPS + 2 * number, 2)
            cost = (time.process_time() - start) / (2 * n_keys * n_batches) * 1e9
            case = f"{function.name}, {n_keys:,} keys, 2 events of a key in a batch"
            figures.append(Figure(name, case, cost, "ns/event"))
    return figures


@click.command(help=__doc__)
@click.option("--quick", is_flag=True, help="a tenth of the events")
@click.option("--out", type=click.Path(path_type=Path), default=Path("out/bench/windows.json"))
def main(quick: bool, out: Path) -> None:
    """Run the benchmark."""
    n, repeats = (100_000, 3) if quick else (1_000_000, 5)
    few, many = Events(n, 100), Events(n, n // 100)
    figures = functions(few, repeats) + functions(many, repeats) + frames(few, repeats)
    figures += steps(few, repeats) + small_batches(100, 20 * repeats)
    figures += lengths(few, repeats, [of for of in TARGETS if of is not Function.PERCENTILE])
    report("windows", figures, {"events": n, "repeats": repeats}, out)


if __name__ == "__main__":
    main()
