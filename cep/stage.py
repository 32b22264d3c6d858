"""What a stage is: streams in, one stream out, between the sources and the rules.

There is none yet; docs/decisions, "Doors", says what will be one.
"""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from cep.schema.stream import Stream


class Stage(Protocol):
    """Makes events of one stream out of events of others, with one meaning locally and on Spark.

    It travels to the workers and has no state: what it gives depends on nothing but the events that it is
    given, so events that are read again give the same.
    """

    @property
    def inputs(self) -> tuple[Stream, ...]:
        """The streams that it reads."""
        ...

    @property
    def output(self) -> Stream:
        """The stream that it makes; rules name it in FROM like any other."""
        ...

    def apply(self, events: pa.Table, stream: Stream) -> pa.Table:
        """Return the events of `output` that events of `stream`, one of `inputs`, give.

        Both are typed events (`cep.schema.text_values.event_table_schema`). The result does not depend on how
        the events of a stream are cut into tables. Raises CepError.
        """
        ...
