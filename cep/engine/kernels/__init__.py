"""The compiled loops: step, close, enumerate. One set of kernels serves every rule: rules are tables.

A key's open runs are a linked list in a pool, ordered by start and then by preference, as the threads of
Pike's VM (Cox, "Regular Expression Matching: the Virtual Machine Approach", 2009). The order makes
selection trivial: the first run of the list that completes is the match to report. A run that takes
nothing costs one test of its state's predicate bits.

A rule is one packed array, a run a row of `runs`, an event a column of `events`: few plain matrices of int64.
Floats are stored by their bits (`functions.as_f`). A table for each field reads better and was 5 to 8 times
slower (decision 1). The other rejected design, a function compiled for each rule, is 20 % faster where every
event is offered (R3), but takes 20 s to compile for each rule and process.

Kernels hold no Python objects and allocate nothing. When a pool could overflow, `run_events` stops *before*
the event and says where; the driver makes room and continues.

These parameters mean the same in every kernel; docstrings of kernels describe only other parameters. Names
that end in `_us` are microseconds: times since 1970, or durations.

Parameters
----------
pool : Pool
    The arrays of a rule (`cep.engine.kernels.layout.Pool`).
event : Offered
    The event on offer (`cep.engine.kernels.layout.Offered`).
rule : (words,) int64
    The packed rule.
runs : (capacity, columns) int64
    The runs of all keys.
keys : (slots, columns) int64
    The keys.
meta : (N_META,) int64
    Values of the whole rule: free rows, counts, the instant.
matches : (capacity, columns) int64
    The matches that were found but not yet removed.
nodes : (capacity, NODE_WIDTH) int64
    The events that runs have taken.
null : (depth,) uint8
    1: the operand of a predicate is NULL.
events : (VALUE + columns + words of known bits, n) int64
    A block of events.
bits : (n,) int64
    The bits of the local predicates that hold for each event of the block.
word : int
    The bits of one event.
slot : int
    A key: its row of `keys`.
run : int
    A row of `runs`; where documented, NONE is a run that does not exist yet.
previous : int
    The run after which the next one is inserted; NONE: at the head of the list.
state : int
    The number of a state.
place : int
    The address in `rule` of the state that `run` is in.
take : int
    The address in `rule` of a take.
variable : int
    The address in `rule` of a variable.
row : int
    An event: its column of `events`.
position : int
    The sequence number of an event; it only grows.
time_us : int
    The time of the event.
now_us : int
    The time of the instant.
end_us : int
    The time at which a match or a timeout ends.
bound_us : int
    The event time that was reached.
reported : int
    The start of the last match of this instant, because MATCH EARLIEST reports one per start; or NONE.
prune_before : int
    The position before which no run may start, because a match of this instant skips past it; or NONE.
timed : bool
    Whether the rule has clocks. It is a constant in each kernel.
fan_out : int
    The largest number of runs that one run can become at one event.
"""
