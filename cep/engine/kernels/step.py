"""One event: runs take it, pass over it, complete, end."""

from __future__ import annotations

from cep.engine.kernels.compiled import apart, part
from cep.engine.kernels.layout import (
    ALWAYS_WALKS,
    CHAIN,
    CLOCK,
    DROPPED,
    EARLIEST_US,
    END,
    FENCE_UNTIL,
    FENCE_VARIABLE,
    FENCE_WIDTH,
    GROUP_CLOCK,
    GROUP_EVENTS,
    GROUP_US,
    GROUP_WIDTH,
    GROUPS,
    HAS_FENCES,
    HEAD,
    HELD,
    IDENTITY,
    INSTANT,
    INSTANT_OUT,
    INTEREST,
    LAST_POS,
    LAST_US,
    LIFT_STATE,
    LIFT_VARIABLE,
    LIFT_WIDTH,
    LOOK_EVENTS,
    LOOK_MEMORY,
    LOOK_US,
    LOOK_WIDTH,
    MAX_RUNS,
    MEMORIES,
    MEMORY,
    MOMENT_US,
    N_EVENTS,
    N_NODES,
    N_OUT,
    N_RUNS,
    NEVER,
    NEXT,
    NODE_EVENT,
    NODE_PARENT,
    NODE_REGISTER,
    NODE_VARIABLE,
    NONE,
    NOTED,
    OVERFLOW,
    OVERFLOWED,
    REGISTER,
    SPAN_EVENTS,
    SPAN_US,
    SPARE,
    START_EVENT,
    START_POS,
    START_US,
    STATE,
    STATE_AFTER_SKIP,
    STATE_ALWAYS,
    STATE_BARS,
    STATE_BEGINS,
    STATE_CLOSES,
    STATE_FENCES,
    STATE_GUARDS,
    STATE_HIGH,
    STATE_INTEREST,
    STATE_LIFTS,
    STATE_LIMITS,
    STATE_LOW,
    STATE_MODE,
    STATE_NEXT,
    STATE_TAKES,
    STATE_TIMER,
    TAIL,
    TAKE_AFTERS,
    TAKE_FENCES,
    TAKE_LOOKS,
    TAKE_OPENS,
    TAKE_VARIABLE,
    TAKE_WIDTH,
    TIME_US,
    TIMEOUTS,
    VALID,
    VARIABLE_AFTER_TAKE,
    VARIABLE_CODE,
    VARIABLE_HASH,
    VARIABLE_MASK,
    VARIABLE_NUMBER,
    WAIT_EVENT,
    WAIT_US,
    ZERO,
    ZERO_VALID,
    place_of,
)
from cep.engine.kernels.registers import evaluate, extend_chain, update_registers
from cep.engine.kernels.run_lists import allocate, copy_run, insert_after, prune, remove_after
from cep.engine.kernels.selection import complete, note, report_timeouts, settle
from cep.program import I64, U8, Mode, OverflowCode

_STRICT, _NEXT, _ANY = int(Mode.STRICT), int(Mode.NEXT), int(Mode.ANY)
_DROP_OLDEST, _FAIL = int(OverflowCode.DROP_OLDEST), int(OverflowCode.FAIL)


@part
def set_waits(rule: I64, runs: I64, run: int, state: int) -> None:
    """Find out until when `run` may wait in `state`: the first of all its limits."""
    clock, place = rule[CLOCK], place_of(state)
    wait_us, wait_event = NEVER, NEVER
    if rule[SPAN_US] >= 0:
        wait_us = runs[run, START_US] + rule[SPAN_US]
    if rule[SPAN_EVENTS] >= 0:
        wait_event = runs[run, clock + START_EVENT] + rule[SPAN_EVENTS]
    if rule[place + STATE_HIGH] >= 0:
        wait_us = min(wait_us, runs[run, clock + LAST_US] + rule[place + STATE_HIGH])
    if rule[place + STATE_TIMER] >= 0:
        wait_us = min(wait_us, runs[run, clock + MOMENT_US] + rule[place + STATE_TIMER])
    for at in range(rule[place + STATE_LIMITS], rule[place + STATE_LIMITS + END]):
        group = rule[GROUPS] + GROUP_WIDTH * rule[at]
        opened = runs[run, clock + GROUP_CLOCK + rule[at]]
        if rule[group + GROUP_US] >= 0:
            wait_us = min(wait_us, opened + rule[group + GROUP_US])
        else:
            wait_event = min(wait_event, opened + rule[group + GROUP_EVENTS])
    runs[run, clock + WAIT_US] = wait_us
    runs[run, clock + WAIT_EVENT] = wait_event


@part
def set_clocks(rule: I64, runs: I64, run: int, take: int, time_us: int, event: int) -> None:
    """The run took an event by edge `take`."""
    clock = rule[CLOCK]
    runs[run, clock + LAST_US] = time_us
    runs[run, clock + MOMENT_US] = time_us
    for at in range(rule[take + TAKE_OPENS], rule[take + TAKE_OPENS + END]):
        in_time = rule[rule[GROUPS] + GROUP_WIDTH * rule[at] + GROUP_US] >= 0
        runs[run, clock + GROUP_CLOCK + rule[at]] = time_us if in_time else event


@part
def may_begin(rule: I64, keys: I64, slot: int, take: int, time_us: int) -> bool:
    """Say whether no event that a run must not begin after lies before this one."""
    look = rule[take + TAKE_LOOKS]
    while look < rule[take + TAKE_LOOKS + END]:
        memory = MEMORY + 2 * rule[look + LOOK_MEMORY]
        if (
            keys[slot, memory] + rule[look + LOOK_US] >= time_us
            and keys[slot, memory + 1] + rule[look + LOOK_EVENTS] >= keys[slot, N_EVENTS]
        ):
            return False
        look += LOOK_WIDTH
    return True


@part
def remember(rule: I64, keys: I64, slot: int, word: int, time_us: int) -> None:
    """Keep time and number of the event where it is one that later runs must not begin after."""
    for memory in range((keys.shape[1] - MEMORY) // 2):
        mask = rule[rule[rule[MEMORIES] + memory] + VARIABLE_MASK]
        if mask == 0 or word & mask != 0:
            keys[slot, MEMORY + 2 * memory] = time_us
            keys[slot, MEMORY + 2 * memory + 1] = keys[slot, N_EVENTS]


@part
def begin_run(rule: I64, events: I64, runs: I64, run: int, row: int, position: int) -> None:
    """Make `run` one that begins with event `row` and has not taken it yet."""
    runs[run, START_US] = events[TIME_US, row]
    runs[run, START_POS] = position
    runs[run, CHAIN] = 0
    runs[run, VALID] = rule[ZERO_VALID]
    for register in range(runs.shape[1] - REGISTER):  # of a constant the compiler makes a call of memset
        runs[run, REGISTER + register] = rule[ZERO]


@part
def agrees(
    rule: I64,
    events: I64,
    runs: I64,
    stack: I64,
    null: U8,
    spare: int,
    variable: int,
    run: int,
    row: int,
    position: int,
) -> bool:
    """Say whether the correlated predicate of `variable`, if there is one, holds for `run` and event `row`.

    NONE is a new run. What must be tried, the spare run does.
    """
    if rule[variable + VARIABLE_CODE] == rule[variable + VARIABLE_CODE + END]:
        return True
    before = run
    if run == NONE:
        begin_run(rule, events, runs, spare, row, position)
        before = spare
    if rule[variable + VARIABLE_AFTER_TAKE] != 0:
        if run != NONE:
            copy_run(runs, run, spare)
        update_registers(rule, events, runs, variable, spare, row, position)
        before = spare
    return evaluate(rule, events, runs, stack, null, variable, before, row)


@apart
def agrees_apart(
    rule: I64,
    events: I64,
    runs: I64,
    stack: I64,
    null: U8,
    spare: int,
    variable: int,
    run: int,
    row: int,
    position: int,
) -> bool:
    """Return what `agrees` does, in a place of its own."""
    return agrees(rule, events, runs, stack, null, spare, variable, run, row, position)


@part
def is_marked(rule: I64, bits: I64, variable: int, row: int) -> bool:
    """Say whether the local predicate of `variable`, if there is one, holds for event `row`."""
    mask = rule[variable + VARIABLE_MASK]
    return mask == 0 or bits[row] & mask != 0


@part
def holds(
    rule: I64,
    events: I64,
    bits: I64,
    runs: I64,
    stack: I64,
    null: U8,
    spare: int,
    variable: int,
    run: int,
    row: int,
    position: int,
) -> bool:
    """Say whether `run` (NONE: a new one) can take event `row` as `variable`."""
    return is_marked(rule, bits, variable, row) and agrees(
        rule, events, runs, stack, null, spare, variable, run, row, position
    )


@part
def take_event(
    rule: I64,
    events: I64,
    runs: I64,
    variable: int,
    run: int,
    row: int,
    position: int,
) -> None:
    """`run` takes event `row` as `variable`."""
    runs[run, LAST_POS] = position
    update_registers(rule, events, runs, variable, run, row, position)
    runs[run, CHAIN] = extend_chain(runs[run, CHAIN], rule[variable + VARIABLE_HASH], events[IDENTITY, row])


@part
def holds_any(
    rule: I64,
    events: I64,
    bits: I64,
    runs: I64,
    stack: I64,
    null: U8,
    spare: int,
    first: int,
    last: int,
    run: int,
    row: int,
    position: int,
) -> bool:
    """Say whether the event could be taken as one of the variables listed at ``first:last``.

    Predicates that must be computed are computed apart: the loop over runs stays smaller.
    """
    for at in range(first, last):
        variable = rule[at]
        if is_marked(rule, bits, variable, row) and (
            rule[variable + VARIABLE_CODE] == rule[variable + VARIABLE_CODE + END]
            or agrees_apart(
                rule, events, runs, stack, null, spare, variable, run, row,
                position,
            )
        ):  # fmt: skip
            return True
    return False


@apart
def is_fenced(
    rule: I64,
    events: I64,
    bits: I64,
    runs: I64,
    stack: I64,
    null: U8,
    spare: int,
    first: int,
    last: int,
    run: int,
    row: int,
    position: int,
) -> bool:
    """Say whether one of the fences ``first:last`` keeps the event off."""
    fence = first
    while fence < last:
        until = rule[fence + FENCE_UNTIL]
        if holds(
            rule, events, bits, runs, stack, null, spare,
            rule[fence + FENCE_VARIABLE], run, row, position,
        ) and not (
            until != NONE
            and holds(
                rule, events, bits, runs, stack, null, spare,
                until, run, row, position,
            )
        ):  # fmt: skip
            return True
        fence += FENCE_WIDTH
    return False


@apart
def lifted(
    rule: I64,
    events: I64,
    bits: I64,
    runs: I64,
    stack: I64,
    null: U8,
    spare: int,
    state: int,
    run: int,
    row: int,
    position: int,
) -> int:
    """Return the state after every fence that the event lifts is gone."""
    lift = rule[place_of(state) + STATE_LIFTS]
    while lift < rule[place_of(state) + STATE_LIFTS + END]:
        if holds(
            rule, events, bits, runs, stack, null, spare,
            rule[lift + LIFT_VARIABLE], run, row, position,
        ):  # fmt: skip
            state = rule[lift + LIFT_STATE]
            lift = rule[place_of(state) + STATE_LIFTS]
        else:
            lift += LIFT_WIDTH
    return state


@part
def can_take(
    rule: I64,
    events: I64,
    bits: I64,
    runs: I64,
    stack: I64,
    null: U8,
    spare: int,
    take: int,
    run: int,
    row: int,
    position: int,
) -> bool:
    """Say whether `run` (NONE: a new one) can make `take` with event `row`."""
    return not (
        rule[HAS_FENCES] != 0
        and is_fenced(
            rule, events, bits, runs, stack, null, spare, rule[take + TAKE_FENCES],
            rule[take + TAKE_FENCES + END], run, row, position,
        )
    ) and holds(
        rule, events, bits, runs, stack, null, spare, rule[take + TAKE_VARIABLE], run, row, position
    )  # fmt: skip


@part
def next_take(
    rule: I64,
    events: I64,
    bits: I64,
    runs: I64,
    stack: I64,
    null: U8,
    spare: int,
    first: int,
    last: int,
    run: int,
    row: int,
    position: int,
) -> int:
    """Return the first of the takes ``first:last`` that `run` can make; `last`: none."""
    take = first
    while take < last and not can_take(
        rule, events, bits, runs, stack, null, spare, take, run, row, position
    ):
        take += TAKE_WIDTH
    return take


@part
def spread(
    rule: I64,
    runs: I64,
    keys: I64,
    meta: I64,
    matches: I64,
    slot: int,
    previous: int,
    run: int,
    is_spare: bool,
    take: int,
    time_us: int,
    reported: int,
    floor: int,
    timed: bool,
) -> tuple[int, int, int, bool]:
    """`run` has made a take: give it its successors, behind `previous`, in order of preference.

    `run` is the spare one or, without `is_spare`, the one behind `previous`. The last successor needs no
    copy: it is `run`. The last result says whether there was one, so that `run` stays.
    """
    goes_on = False
    last = rule[take + TAKE_AFTERS + END] - 1
    for at in range(rule[take + TAKE_AFTERS], last + 1):
        state = rule[at]
        if state == NONE:  # ACCEPT
            previous, reported, floor = complete(
                rule, runs, keys, meta, matches, slot, previous, run, time_us, reported, floor
            )
        else:
            if timed:
                set_waits(rule, runs, run, state)
                if runs[run, rule[CLOCK] + WAIT_EVENT] <= keys[slot, N_EVENTS]:  # over as it begins
                    if rule[place_of(state) + STATE_CLOSES] != 0:
                        previous, reported, floor = complete(
                            rule, runs, keys, meta, matches, slot, previous, run, time_us, reported, floor
                        )
                    elif rule[TIMEOUTS] != 0:
                        note(runs, meta, run, state, time_us)
                    continue
                keys[slot, EARLIEST_US] = min(keys[slot, EARLIEST_US], runs[run, rule[CLOCK] + WAIT_US])
            successor = run
            if at < last:
                successor = allocate(runs, meta)
                copy_run(runs, run, successor)
            elif is_spare:
                meta[SPARE] = allocate(runs, meta)
            goes_on = at == last
            if is_spare or at < last:
                insert_after(runs, keys, slot, previous, successor)
            runs[successor, STATE] = state
            keys[slot, INTEREST] |= rule[place_of(state) + STATE_INTEREST]
            previous = successor
    return previous, reported, floor, goes_on


@part
def note_take(rule: I64, runs: I64, nodes: I64, meta: I64, variable: int, run: int, position: int) -> None:
    """Remember the event that `run` has just taken; the caller made sure there is room."""
    register = REGISTER + rule[NODE_REGISTER]
    node = meta[N_NODES]
    nodes[node, NODE_PARENT] = runs[run, register] - 1
    nodes[node, NODE_EVENT] = position
    nodes[node, NODE_VARIABLE] = rule[variable + VARIABLE_NUMBER]
    meta[N_NODES] = node + 1
    runs[run, register] = node + 1


@part
def step(
    rule: I64,
    events: I64,
    bits: I64,
    runs: I64,
    keys: I64,
    meta: I64,
    matches: I64,
    nodes: I64,
    stack: I64,
    null: U8,
    slot: int,
    row: int,
    position: int,
    timed: bool,
) -> None:
    """Offer event `row` to every run of its key, in order, then let it begin new ones.

    `timed` is a constant in each caller: for a rule without clocks what they need is not even compiled.
    """
    word, time_us = bits[row], events[TIME_US, row]
    clock = rule[CLOCK]
    if timed:
        keys[slot, N_EVENTS] += 1
    meta[INSTANT] += 1
    meta[INSTANT_OUT] = meta[N_OUT]
    reported, floor = NONE, NONE
    previous, run = NONE, keys[slot, HEAD]
    if not timed and rule[ALWAYS_WALKS] == 0 and word & keys[slot, INTEREST] == 0:
        previous, run = keys[slot, TAIL], NONE  # no run can move
    else:
        keys[slot, INTEREST] = 0
    spare = meta[SPARE]
    while run != NONE:
        following = runs[run, NEXT]
        state = runs[run, STATE]
        if state == HELD:
            previous, run = run, following
            continue
        place = place_of(state)
        if (
            rule[place + STATE_ALWAYS] == 0
            and word & rule[place + STATE_INTEREST] == 0
            and not (timed and runs[run, clock + WAIT_EVENT] <= keys[slot, N_EVENTS])
        ):
            keys[slot, INTEREST] |= rule[place + STATE_INTEREST]
            previous, run = run, following
            continue
        if runs[run, START_POS] < floor:
            remove_after(runs, keys, meta, slot, previous)
            run = following
            continue
        if rule[HAS_FENCES] != 0:
            state = lifted(
                rule, events, bits, runs, stack, null, spare, state, run, row, position
            )  # fmt: skip
            place = place_of(state)
            if is_fenced(
                rule, events, bits, runs, stack, null, spare,
                rule[place + STATE_FENCES],
                rule[place + STATE_FENCES + END], run, row, position,
            ):  # fmt: skip
                remove_after(runs, keys, meta, slot, previous)
                run = following
                continue
        mode = rule[place + STATE_MODE]
        early = timed and time_us < runs[run, clock + LAST_US] + rule[place + STATE_LOW]
        stays = not holds_any(
            rule, events, bits, runs, stack, null, spare,
            rule[place + STATE_GUARDS], rule[place + STATE_GUARDS + END], run, row, position,
        )  # fmt: skip
        goes_on = False
        if stays and not early:
            # A take is made when it is known whether another one follows: the last one needs no copy of the
            # run, unless that stays, too.
            made, last = NONE, rule[place + STATE_TAKES + END]
            take = rule[place + STATE_TAKES]
            while True:
                take = next_take(
                    rule, events, bits, runs, stack, null, spare, take, last, run,
                    row, position,
                )  # fmt: skip
                if made != NONE:
                    taker = run
                    if take < last or mode == _ANY:
                        copy_run(runs, run, spare)
                        taker = spare
                    variable = rule[made + TAKE_VARIABLE]
                    take_event(rule, events, runs, variable, taker, row, position)
                    if rule[NODE_REGISTER] != NONE:
                        note_take(rule, runs, nodes, meta, variable, taker, position)
                    stays = stays and mode == _ANY
                    if timed:
                        set_clocks(rule, runs, taker, made, time_us, keys[slot, N_EVENTS])
                    previous, reported, floor, goes_on = spread(
                        rule, runs, keys, meta, matches, slot, previous, taker, taker != run,
                        made, time_us, reported, floor, timed,
                    )  # fmt: skip
                    goes_on = goes_on and taker == run
                    spare = meta[SPARE]
                if take == last:
                    break
                made = take
                take += TAKE_WIDTH
        if mode == _STRICT:
            stays = False
        if stays and mode == _NEXT and not early:
            stays = not holds_any(
                rule, events, bits, runs, stack, null, spare,
                rule[place + STATE_BEGINS], rule[place + STATE_BEGINS + END], run, row, position,
            )  # fmt: skip
        if stays:
            stays = not holds_any(
                rule, events, bits, runs, stack, null, spare,
                rule[place + STATE_BARS], rule[place + STATE_BARS + END], run, row, position,
            )  # fmt: skip
        if stays and rule[place + STATE_AFTER_SKIP] == NONE:  # a trailing "not next" was decided
            previous, reported, floor = complete(
                rule, runs, keys, meta, matches, slot, previous, run, time_us, reported, floor
            )
            stays = False
        if timed and stays and runs[run, clock + WAIT_EVENT] <= keys[slot, N_EVENTS]:
            if rule[place_of(rule[place + STATE_NEXT]) + STATE_CLOSES] != 0:
                previous, reported, floor = complete(
                    rule, runs, keys, meta, matches, slot, previous, run, time_us, reported, floor
                )
            elif rule[TIMEOUTS] != 0:
                note(runs, meta, run, state, time_us)
            stays = False  # here a count of events ends a run
        if stays:
            state = rule[place + STATE_NEXT]
            runs[run, STATE] = state
            keys[slot, INTEREST] |= rule[place_of(state) + STATE_INTEREST]
            previous = run
        elif not goes_on:
            remove_after(runs, keys, meta, slot, previous)
        run = following

    if position >= floor:
        take = rule[place_of(0) + STATE_TAKES]
        while take < rule[place_of(0) + STATE_TAKES + END]:
            if (not timed or may_begin(rule, keys, slot, take, time_us)) and can_take(
                rule, events, bits, runs, stack, null, spare, take, NONE, row, position
            ):
                variable = rule[take + TAKE_VARIABLE]
                begin_run(rule, events, runs, spare, row, position)
                take_event(rule, events, runs, variable, spare, row, position)
                if rule[NODE_REGISTER] != NONE:
                    note_take(rule, runs, nodes, meta, variable, spare, position)
                if timed:
                    runs[spare, clock + START_EVENT] = keys[slot, N_EVENTS]
                    set_clocks(rule, runs, spare, take, time_us, keys[slot, N_EVENTS])
                previous, reported, floor, _ = spread(
                    rule, runs, keys, meta, matches, slot, previous, spare, True, take, time_us, reported,
                    floor, timed,
                )  # fmt: skip
                spare = meta[SPARE]
            take += TAKE_WIDTH
    if timed:
        remember(rule, keys, slot, word, time_us)
    if floor > 0:
        prune(runs, keys, meta, slot, floor)
    floor = max(floor, settle(rule, runs, keys, meta, matches, slot))
    if timed and meta[NOTED] != 0:
        report_timeouts(runs, keys, meta, matches, slot, floor)
    if keys[slot, N_RUNS] > rule[MAX_RUNS]:
        drop_runs(rule, runs, keys, meta, slot)


@apart
def drop_runs(rule: I64, runs: I64, keys: I64, meta: I64, slot: int) -> None:
    """Bring a key that has too many runs back to its limit (ON OVERFLOW)."""
    excess = keys[slot, N_RUNS] - rule[MAX_RUNS]
    meta[DROPPED] += excess
    if rule[OVERFLOW] == _FAIL:
        meta[OVERFLOWED] = slot + 1
    last = NONE
    if rule[OVERFLOW] != _DROP_OLDEST:
        last = keys[slot, HEAD]
        for _ in range(rule[MAX_RUNS] - 1):
            last = runs[last, NEXT]
    for _ in range(excess):
        remove_after(runs, keys, meta, slot, last)
