"""The compiled loops: step, close, enumerate. One set of kernels serves every rule: rules are tables.

A key's open runs are a linked list in a pool, ordered by start and then by preference, as the threads of
Pike's VM (Cox, "Regular Expression Matching: the Virtual Machine Approach", 2009). The order makes
selection trivial: the first run of the list that completes is the match to report. A run that takes
nothing costs one test of its state's predicate bits.

Arguments are few plain matrices of int64: a run is a row of `runs`, an event a column of `events`, a rule one
packed array. Tuples of many small arrays read better, but each access to a member counts references and each
call copies the tuple: measured 5 to 8 times slower. Floats are stored by their bits (`functions.as_f`).

The other rejected way, a function compiled for each rule, is faster by a fifth where every event is offered
(R3), and takes 20 s of compiling for each rule and process.

Kernels hold no Python objects and allocate nothing. When a pool could overflow, `run_events` stops *before*
the event and says where; the driver makes room and goes on.
"""
