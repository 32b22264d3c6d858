"""Matcher: events in, matches out, for a group of keys. (Contract; the engine is being written.)

    matcher = Matcher(program)
    late = matcher.push(batch)          # pa.Table of program.event_schema; returns the rows that came too late
    matches = matcher.advance(wm_us)    # pa.Table of program.match_schema, ordered by end, start, rule, ...
    matcher.finish()                    # advance to the end of time
    data = matcher.snapshot()           # bytes;  Matcher.restore(program, data)
    matcher.watermark_us                # int
    matcher.next_deadline_us()          # int | None: earliest event time at which advance() has something to do
    matcher.counters                    # Counters: events, late, duplicates, dropped_runs, matches (per rule)
"""
