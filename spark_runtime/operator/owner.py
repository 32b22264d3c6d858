"""Owners: processes next to Spark's workers that keep the state of key groups in memory.

Any idle worker may get the next task of a key group, so state that a worker keeps would usually be in a
different process. An owner is forked from the first worker that needs it. It serves all workers on its
machine through a socket that only this user can open, and ends when the last of them has ended. Each key
group has one owner among as many as the machine has cores.

A message is frames: kind (1 byte), length (8 bytes), bytes. A request has one or two frames for each parcel,
and ends with the call. Large data of parcels are in the file of the task, and the frame says where. An answer
has a frame for each table, and ends with everything else, or with an error.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import json
import os
import resource
import selectors
import socket
import stat
import struct
import sys
import tempfile
import traceback
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cep.counts import Counts
from cep.errors import CepError, StateError
from cep.formats.late_events import late_schema
from spark_runtime.operator.call import Moment, Results, in_order
from spark_runtime.state.files import StateFiles, WarmGroups
from spark_runtime.state.pieces import Given
from spark_runtime.state.pointer import Pointer, Task
from spark_runtime.tables.content import store, tables_in, tables_of, used
from spark_runtime.wire.output import CallResults, Matches, carried_schema
from spark_runtime.wire.parcels import Contents, Parcel, record_bytes, table_of_bytes

if TYPE_CHECKING:
    from spark_runtime.operator.operator import KeyGroups

_FRAME = struct.Struct("<cq")
_PARCEL = struct.Struct("<iiq")  # contents, program (-1: none), length of the text (-1: none)

_PLACE = struct.Struct("<qq")  # of data in the file of the task: where they start, their length

_ATTEMPTS = 2

_QUIET_S = 0.02
"""After this time without a call, an owner prepares for the next one. The pause between two
micro-batches is longer.
"""

_LONGEST_PLACE = 50
"""Characters of a folder for temporary files below which sockets fit: their names have at most 107."""


class Owner:
    """Handles calls of groups whose state is in files. `most_bytes`: how much memory this process may use."""

    def __init__(self, operator: KeyGroups, most_bytes: int) -> None:
        assert operator.kept is not None
        self._operator = operator
        folder, programs = operator.kept.tables, operator.rules.programs
        tables_of = partial(tables_in, folder, programs)
        self._files = StateFiles(operator.kept, operator.rules, operator.n_groups, tables_of)
        self._warm = WarmGroups(self._files, lambda: _resident_bytes() > most_bytes)

    def given(self, task: Task, start: int, length: int) -> Given:
        """Return the input that a worker wrote to the file of a task."""
        return self._files.given(task, start, length)

    def call(
        self,
        value: bytes,
        task: Task,
        moment: Moment,
        parcels: Sequence[Parcel],
        given: Given | None = None,
    ) -> tuple[Results, bytes]:
        """Return the results of a call, and the new value for Spark's state store.

        `given`: contains the data of some of the parcels.
        """
        programs, own = self._operator.rules.programs, self._operator.tables
        tables = tables_of(programs, own, moment.told)
        pointer = Pointer.decode(value)
        chain, is_warm, ahead = self._warm.take(task.group, pointer)
        is_due = self._files.is_due(pointer, task, was_warm=is_warm)
        chain.is_recording = ahead is not None or not is_due
        chain.give(used(programs, own, moment.told), tables)
        results = self._operator.results(chain, moment, parcels)
        stored = self._files.after(pointer, task, chain, given, ahead)
        self._operator.limits_of(task.group).require_state(stored.n_bytes, chain)
        state = {**stored.counts, "warm" if is_warm else "cold": 1}
        if stored.pointer is not None and (n_evicted := self._warm.put(task, stored.pointer, chain)):
            state["evicted"] = n_evicted
        results.counts.append(Counts(state=state).to_json())
        return results, stored.value

    @property
    def is_settled(self) -> bool:
        """Whether there is nothing to do between two calls."""
        return self._warm.is_settled

    def settle(self) -> None:
        """Do for one key group what its next call would have to do otherwise."""
        self._warm.settle()


def _resident_bytes() -> int:
    """Return the size of this process in memory."""
    with suppress(OSError), open("/proc/self/statm") as stream:
        return int(stream.read().split()[1]) * resource.getpagesize()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


# ---------------------------------------------------------------- in a worker


class Owners:
    """The connections of a worker to the owners of one operator."""

    def __init__(self, operator: KeyGroups) -> None:
        assert operator.kept is not None
        self._operator = operator
        # Records name them. In a pipeline, the driver has written what a task's property names.
        store(operator.kept.tables, operator.tables.values())
        name = hashlib.sha256(f"{operator.kept.folder}\0{operator.kept.run}".encode()).hexdigest()[:24]
        place = tempfile.gettempdir()
        place = place if len(place) <= _LONGEST_PLACE else "/tmp"  # noqa: S108 - only this user enters the folder
        self._folder = Path(place) / f"spark-cep-owners-{os.getuid()}" / name
        self._n = os.cpu_count() or 1
        most_bytes = operator.kept.most_bytes or os.sysconf("SC_PHYS_PAGES") * resource.getpagesize() // 4
        self._most_bytes = most_bytes // self._n
        self._files = StateFiles(operator.kept, operator.rules, operator.n_groups)
        self._sockets: dict[int, socket.socket] = {}

    def call(
        self, value: bytes, task: Task, moment: Moment, parcels: Sequence[Parcel]
    ) -> tuple[Results, bytes]:
        """Return the results of a call, and the new value for Spark's state store.

        If the owner has ended, for example because it used too much memory, another one starts.
        """
        number = task.partition % self._n
        for _ in range(_ATTEMPTS):
            if number not in self._sockets:
                self._sockets[number] = self._connected(number)
            try:
                return self._asked(self._sockets[number], value, task, moment, parcels)
            except (OSError, EOFError) as error:
                self._sockets.pop(number).close()
                failure = error
        raise RuntimeError("the process that keeps the state of a key group ended twice") from failure

    def close(self) -> None:
        """End the connections. An owner ends with its last one."""
        for connection in self._sockets.values():
            connection.close()
        self._sockets.clear()

    def _asked(
        self, connection: socket.socket, value: bytes, task: Task, moment: Moment, parcels: Sequence[Parcel]
    ) -> tuple[Results, bytes]:
        parcels = in_order(parcels)
        whole, places = self._give(value, task, parcels)
        with connection.makefile("rb") as stream:
            for number, parcel in enumerate(parcels):
                _send_parcel(connection, parcel, places.get(number))
            what = {"value": base64.b64encode(value).decode(), "task": task, "moment": moment, "given": whole}
            _send(connection, b"C", json.dumps(what).encode())
            return self._answer(stream)

    def _give(
        self, value: bytes, task: Task, parcels: Sequence[Parcel]
    ) -> tuple[tuple[int, int] | None, dict[int, int]]:
        """Write events to the file of the task. Return where they are in the file and how long they are, and
        the place of each parcel in them, by the parcel's number.
        """
        inputs = {
            number: (parcel.program, parcel.data)
            for number, parcel in enumerate(parcels)
            if parcel.program is not None and parcel.data is not None
        }
        given = None
        if self._operator.rules.corrections is None:  # they record events otherwise
            given = self._files.give(Pointer.decode(value), task, [*inputs.values()])
        return (None, {}) if given is None else (given[0], dict(zip(inputs, given[1], strict=True)))

    def _answer(self, stream: Any) -> tuple[Results, bytes]:
        rules = self._operator.rules
        found = CallResults(Matches(carried_schema(rules.match_schema)))
        while True:
            kind, data = _receive(stream)
            match kind:
                case b"M":
                    found.matches.append(table_of_bytes(data, found.matches.schema))
                case b"L":
                    name, _, rows = data.partition(b"\0")
                    stream_of = rules.inputs[name.decode()]
                    late = table_of_bytes(rows, late_schema(stream_of))
                    found.late.setdefault(stream_of.name, []).append(late)
                case b"E":
                    end = json.loads(data)
                    found.dead.extend(end["dead"])
                    return Results(found, end["counts"], end["deadline"]), base64.b64decode(end["value"])
                case _:
                    raise _error_in(json.loads(data))

    def _connected(self, number: int) -> socket.socket:
        """Return a connection to an owner, which is started if there is none."""
        for folder in (self._folder.parent, self._folder):
            folder.mkdir(mode=0o700, exist_ok=True)
            found = folder.lstat()  # a link may lead to a folder of ours in which others may write
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
                title = f"`{folder}` is a link, or belongs to other users, too"
                raise StateError("E0702", title, "remove it, or set TMPDIR")
        place = self._folder / str(number)
        with (self._folder / f"{number}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            connection = _connection(place)
            if connection is None:  # none has started, or it has ended
                _sweep(self._folder.parent)
                listening = socket.socket(socket.AF_UNIX)
                listening.bind(str(place))
                listening.listen()
                self._start(listening, place)
                listening.close()
                connection = _connection(place)
        if connection is None:
            raise RuntimeError("the process that keeps the state of a key group did not start")
        return connection

    def _start(self, listening: socket.socket, place: Path) -> None:
        """Start an owner as a grandchild, so that this process does not have to wait for its end."""
        child = os.fork()
        if child == 0:
            if os.fork() == 0:
                _live(listening, place, Owner(self._operator, self._most_bytes))
            os._exit(0)
        os.waitpid(child, 0)


def _connection(place: Path) -> socket.socket | None:
    """Return a connection to the owner that listens at `place`; None: there is none, and `place` is free."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(str(place))
    except OSError:
        connection.close()
        place.unlink(missing_ok=True)
        return None
    return connection


def _sweep(folder: Path) -> None:
    """Remove what killed owners left: sockets at which nobody listens, and their folders."""
    with suppress(OSError):
        for place in folder.glob("*/*[0-9]"):
            with suppress(OSError), place.with_suffix(".lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # a worker that starts one holds it
                if (connection := _connection(place)) is None:
                    _remove(place)
                else:
                    connection.close()


def _remove(place: Path) -> None:
    """Remove the place of an owner. A worker that waits for its lock may start another one: no harm."""
    with suppress(OSError):
        place.unlink(missing_ok=True)
        place.with_suffix(".lock").unlink(missing_ok=True)
        place.parent.rmdir()


def _error_in(found: dict[str, str]) -> Exception:
    if "code" in found:
        return StateError(found["code"], found["text"], found["help"])
    return RuntimeError(f"the call of a key group failed\n{found['text']}")


# ---------------------------------------------------------------- in an owner


def _live(listening: socket.socket, place: Path, owner: Owner) -> None:
    """Serve until the last connection has ended; then end this process."""
    status = 1
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1):  # Spark reads what the first worker writes to them
            os.dup2(nothing, number)
        kept = {0, 1, 2, listening.fileno()}
        for name in (
            os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else map(str, range(3, 1024))
        ):
            if int(name) not in kept:
                with suppress(OSError):
                    os.close(int(name))
        _serve(listening, owner)
        status = 0
    except BaseException:  # noqa: BLE001 - nobody is left to handle it
        traceback.print_exc(file=sys.stderr)
    finally:
        _remove(place)
        os._exit(status)


def _serve(listening: socket.socket, owner: Owner) -> None:
    with selectors.DefaultSelector() as selector:
        selector.register(listening, selectors.EVENT_READ)
        n_open, had_some, quiet_s = 0, False, _QUIET_S
        while n_open or not had_some:
            ready = selector.select(None if owner.is_settled else quiet_s)
            quiet_s = _QUIET_S if ready else 0.0  # the next key group need not wait for so long again
            if not ready:
                owner.settle()
            for key, _ in ready:
                if key.fileobj is listening:
                    connection, _ = listening.accept()
                    selector.register(connection, selectors.EVENT_READ, connection.makefile("rb"))
                    n_open, had_some = n_open + 1, True
                elif not _answer_one(key.fileobj, key.data, owner):  # type: ignore[arg-type]
                    selector.unregister(key.fileobj)
                    key.fileobj.close()  # type: ignore[union-attr]
                    n_open -= 1


def _answer_one(connection: socket.socket, stream: Any, owner: Owner) -> bool:
    """Answer one request; return whether there was one."""
    try:
        parcels: list[Parcel] = []
        places: dict[int, tuple[int, int]] = {}
        kind, data = _receive(stream)
        while kind != b"C":
            if kind == b"P":
                parcels.append(_parcel_in(data))
            elif kind == b"D":
                parcels[-1] = parcels[-1]._replace(data=data)
            else:
                places[len(parcels) - 1] = _PLACE.unpack(data)
            kind, data = _receive(stream)
        what = json.loads(data)
        try:
            before, task, moment = what["value"], Task(*what["task"]), Moment(*what["moment"])
            given = None if what["given"] is None else owner.given(task, *what["given"])
            for number, place in places.items():
                assert given is not None
                parcels[number] = parcels[number]._replace(data=given.data.slice(*place))
            results, value = owner.call(base64.b64decode(before), task, moment, parcels, given)
        except CepError as error:
            told = {"code": error.code, "text": error.args[0], "help": error.help}
            _send(connection, b"X", json.dumps(told).encode())
        except Exception:  # noqa: BLE001 - the worker reports it
            _send(connection, b"X", json.dumps({"text": traceback.format_exc()}).encode())
        else:
            _send_results(connection, results, value)
    except (OSError, EOFError):
        return False
    return True


def _send_results(connection: socket.socket, results: Results, value: bytes) -> None:
    for table in results.found.matches:
        _send(connection, b"M", record_bytes(table))
    results.found.matches.close()
    for name, tables in results.found.late.items():
        for late in tables:
            if late.num_rows:
                _send(connection, b"L", name.encode() + b"\0" + record_bytes(late))
    end = {
        "dead": results.found.dead,
        "counts": results.counts,
        "deadline": results.deadline_us,
        "value": base64.b64encode(value).decode(),
    }
    _send(connection, b"E", json.dumps(end).encode())


# ---------------------------------------------------------------- frames


def _send(connection: socket.socket, kind: bytes, *parts: Any) -> None:
    length = sum(memoryview(part).nbytes for part in parts)
    connection.sendall(_FRAME.pack(kind, length))
    for part in parts:
        connection.sendall(part)


def _receive(stream: Any) -> tuple[bytes, bytes]:
    """Return the kind and the bytes of the next frame. Raises EOFError if there is none."""
    kind, length = _FRAME.unpack(_exactly(stream, _FRAME.size))
    return kind, _exactly(stream, length)


def _exactly(stream: Any, n: int) -> bytes:
    data: bytes = stream.read(n)
    if len(data) < n:
        raise EOFError
    return data


def _send_parcel(connection: socket.socket, parcel: Parcel, place: int | None = None) -> None:
    """Send a parcel. `place`: its data are in the file of the task, and start there in what is given."""
    text = None if parcel.text is None else parcel.text.encode()
    program = -1 if parcel.program is None else parcel.program
    head = _PARCEL.pack(parcel.contents, program, -1 if text is None else len(text))
    _send(connection, b"P", head, text or b"")
    if parcel.data is None:
        return
    if place is not None:
        _send(connection, b"F", _PLACE.pack(place, len(parcel.data)))
    else:  # a frame of its own, because Arrow needs it at a multiple of 8 bytes
        _send(connection, b"D", parcel.data)


def _parcel_in(head: bytes) -> Parcel:
    contents, program, n_text = _PARCEL.unpack_from(head)
    text = None if n_text < 0 else head[_PARCEL.size :].decode()
    return Parcel(Contents(contents), None if program < 0 else program, text, None)


_owners: dict[tuple[str, str], Owners] = {}


def owners_of(operator: KeyGroups) -> Owners:
    """Return the connections of this worker for an operator.

    Raises StateError (E0702): the checkpoint was copied to storage where state has no files.
    """
    if operator.kept is None:
        raise StateError(
            "E0702",
            "the checkpoint has state in files, which this run cannot read",
            "a warning at its start says why; with static tables keep the checkpoint on a disk. Before it is "
            "copied to other storage, run with `state: inline` until it has no files below `state/`",
        )
    what = operator.kept.folder, operator.kept.run
    if what not in _owners:
        for ended in _owners.values():
            ended.close()
        _owners.clear()
        _owners[what] = Owners(operator)
    return _owners[what]
