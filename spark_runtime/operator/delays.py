"""How long after its end a match was found, by rule."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cep.counts import DELAYS_S, Counts, delay_name
from cep.program.program import EVENT_NUMBER, MATCH, OUTCOME
from cep.program.views import KIND
from cep.rule_set import RETRACT

_BOUNDS_US = (np.array(DELAYS_S) * 1e6).astype(np.int64)


def count_delays(matches: pa.Table, now_us: int, counts: Counts) -> None:
    """Add the delays of matches (`Program.match_schema`) to `counts`.

    A delay is `now_us`, microseconds since 1970, minus `match_end`; 0 if the match ends later. Timeouts and
    rows that withdraw a match do not count, and a match counts once if it has a row for each event.
    """
    is_counted = np.ones(matches.num_rows, np.bool_)
    for name, value, is_equal in ((OUTCOME, MATCH, True), (KIND, RETRACT, False), (EVENT_NUMBER, 1, True)):
        if name in matches.column_names:
            found = pc.equal(matches.column(name), pa.scalar(value, matches.schema.field(name).type))
            is_counted &= np.asarray(pc.fill_null(found, is_equal)) == is_equal
    rules = matches.column("rule").combine_chunks().dictionary_encode()
    names, codes = rules.dictionary.to_pylist(), np.asarray(rules.indices)[is_counted]
    ends_us = np.asarray(matches.column("match_end").cast(pa.int64()))[is_counted]
    delays_us = np.maximum(now_us - ends_us, 0)
    n_bounds = len(DELAYS_S) + 1
    places = codes * n_bounds + np.searchsorted(_BOUNDS_US, delays_us)
    numbers = np.bincount(places, minlength=n_bounds * len(names))
    for place in np.flatnonzero(numbers).tolist():
        name = delay_name(names[place // n_bounds], place % n_bounds)
        counts.delays[name] = counts.delays.get(name, 0) + int(numbers[place])
    for code, name in enumerate(names):
        total_us = int(delays_us[codes == code].sum())
        counts.delay_us[name] = counts.delay_us.get(name, 0) + total_us
