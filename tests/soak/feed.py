"""The events of a soak: a fixed rate, one file of each stream and minute, to which lines are added.

What was sent is kept, so that a batch can read it again without what the pipeline called late or dead.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

STREAMS = {"pays": 0.7, "logins": 0.27, "limits": 0.03}
"""Streams, and the table `limits`, by their share of the events."""

KINDS = ("BACK", "AHEAD", "JUMP", "BROKEN")
"""Clocks an hour behind, clocks a month ahead, all clocks by some seconds; lines that are no events."""

LATENESS, MAX_AHEAD = 3.0, 3600.0
_PERIOD = 0.25
_N_KEYS = 300
_AT_ONCE = 10
_LARGEST_JUMP = 20.0


@dataclass
class Feed:
    """Sends events, while it is entered.

    Parameters
    ----------
    folder
        The streams' files are in `events` below it, and everything that was sent in `sent`.
    rate
        Events per second.
    drawn
        What it draws from.
    began
        When it began, in seconds since 1970.
    correct_within
        Seconds for which late events are corrected.
    """

    folder: Path
    rate: int
    drawn: random.Random
    correct_within: float = 0.0
    began: float = field(default_factory=time.time)
    n_sent: int = 0
    must_be_late: set[int] = field(default_factory=set)
    may_be_late: set[int] = field(default_factory=set)
    dead: set[str] = field(default_factory=set)
    _offset: float = 0.0  # of all clocks, in seconds
    _latest: dict[str, float] = field(default_factory=dict)
    _due: float = 0.0
    _last: float = field(init=False)
    _stop: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        for name in STREAMS:
            (self.folder / "events" / name).mkdir(parents=True)
        (self.folder / "sent").mkdir()
        self._last = self.began
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Feed:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(_PERIOD):
            with self._lock:
                self.step(time.time())

    def step(self, now: float) -> None:
        """Send what is due between the last call and `now`."""
        self._due += (now - self._last) * self.rate
        self._last = now
        n, self._due = int(self._due), self._due % 1
        lines: dict[str, list[str]] = {name: [] for name in STREAMS}
        for _ in range(n):
            stream = self.drawn.choices(list(STREAMS), list(STREAMS.values()))[0]
            at = now + self._offset - self.drawn.random()
            lines[stream].append(self._line(stream, at))
        self._send(lines, now)

    def disturb(self, kind: str) -> str:
        """Let clocks go wrong; return how."""
        with self._lock:
            return self._disturb(kind)

    def _disturb(self, kind: str) -> str:
        now = time.time()
        if kind == "JUMP":
            self._offset = round(self.drawn.uniform(0, _LARGEST_JUMP), 1)
            return f"all clocks are {self._offset:+.1f} s"
        lines: dict[str, list[str]] = {name: [] for name in STREAMS}
        for name in STREAMS:
            for _ in range(_AT_ONCE):
                if kind == "BACK":
                    self.must_be_late.add(self.n_sent)
                    lines[name].append(self._line(name, now - 3600 - self.drawn.random()))
                    continue
                line = self._line(name, now + 30 * 86400, is_dead=True)
                line = line if kind == "AHEAD" else line[: self.drawn.randint(5, 20)] + f"#{self.n_sent}"
                self.dead.add(line)
                lines[name].append(line)
        self._send(lines, now)
        return f"{_AT_ONCE * len(STREAMS)} lines"

    def accepted(self, stream: str, late: set[int]) -> Iterator[str]:
        """Yield the lines of a stream that were no dead letters, and not late."""
        with (self.folder / "sent" / f"{stream}.jsonl").open(encoding="utf-8") as lines:
            for line in lines:
                if line.rstrip("\n") not in self.dead and json.loads(line)["id"] not in late:
                    yield line

    def _line(self, stream: str, at: float, *, is_dead: bool = False) -> str:
        number, drawn = self.n_sent, self.drawn
        self.n_sent += 1
        if not is_dead:
            latest = self._latest.get(stream, at)
            if at <= latest - LATENESS - self.correct_within:
                self.may_be_late.add(number)
            self._latest[stream] = max(latest, at)
        ts = datetime.fromtimestamp(at, UTC).isoformat()
        key = f"k{drawn.randrange(_N_KEYS)}"
        of_streams: dict[str, dict[str, object]] = {
            "pays": {"amount": drawn.randint(1, 100)},
            "logins": {"ok": drawn.random() < 0.7},
            "limits": {"op": drawn.choice("cud"), "cap": drawn.randint(60, 99)},
        }
        return json.dumps({"id": number, "k": key, "ts": ts, **of_streams[stream]})

    def _send(self, lines: dict[str, list[str]], now: float) -> None:
        for name, given in lines.items():
            text = "".join(f"{line}\n" for line in given)
            for file in (f"events/{name}/{int(now // 60)}.json", f"sent/{name}.jsonl"):
                with (self.folder / file).open("a", encoding="utf-8") as out:
                    out.write(text)
