"""Faults of patterns, and of rules over rules."""

from __future__ import annotations

from tests.property.planted.fault import Fault

_GRAPH = "cep/compiler/automaton/pattern_graph.py"
_NFA, _LOWER, _KERNELS = (
    "cep/compiler/automaton/nfa.py",
    "cep/compiler/lowering/lower.py",
    "cep/engine/kernels",
)

FAULTS = (
    Fault(
        "no run is open where the events of a batch begin",
        f"{_KERNELS}/columns/lookahead.py",
        "is_open = code, slots.shape[0] > 0 and keys[slots[code], HEAD] != NONE",
        "is_open = code, False",
    ),
    Fault(
        "a run that may ignore events is taken to end with the next one",
        f"{_KERNELS}/columns/lookahead.py",
        "is_open = begins or (is_open and (has_bits or not is_strict))",
        "is_open = begins or (is_open and has_bits)",
        only="rules",
    ),
    Fault(
        "an event that breaks a strict joint is left out",
        f"{_KERNELS}/columns/lookahead.py",
        "if begins or (is_open and (has_bits or needs_every_event)):",
        "if begins or (is_open and has_bits):",
    ),
    Fault(
        "a run that must look at every event is not offered each",
        "cep/engine/matching/packed_rule.py",
        '"always_walks": int(rule.tables.state_always[1:].any())',
        '"always_walks": 0',
    ),
    Fault(
        "an absence is dropped where `->` follows",
        _NFA,
        "not_followed_by = () if joint.contiguity is ir.Contiguity.STRICT else path.not_followed_by",
        "not_followed_by = path.not_followed_by if joint.contiguity is ir.Contiguity.ANY else ()",
    ),
    Fault(
        "an absence behind a loop does not hold in it",
        _GRAPH,
        "after = self.add(Mark.NOT_FOLLOWED_BY, after, value=item.node.variable)",
        "pass",
    ),
    Fault(
        "the branch written last is preferred",
        _GRAPH,
        "for successor in reversed(graph.nodes[node].successors)",
        "for successor in graph.nodes[node].successors",
    ),
    Fault(
        "a group's window begins with the match",
        _GRAPH,
        "path = replace(path, opened=_with(path.opened, value))",
        "pass",
    ),
    Fault(
        "rows are dropped although the next event counts",
        "cep/compiler/lowering/relevance.py",
        "return tuple(_reasons(rule, automaton, undecided))",
        "return ()",
    ),
    Fault(
        "a condition on the running aggregate reads it as it was before",
        _LOWER,
        "after_take=before is None",
        "after_take=False",
    ),
    Fault(
        "< as <= in WITHIN",
        _LOWER,
        "span_us=rule.window.span_us if",
        "span_us=rule.window.length_us if",
    ),
    Fault(
        "rules share bits they should not",
        _LOWER,
        "bits = {predicate: 1 << bit for bit, predicate in enumerate(shared.words[word])}",
        "bits = {predicate: 1 << bit // 2 * 2 for bit, predicate in enumerate(shared.words[word])}",
    ),
    Fault(
        "an absence at the start reaches one microsecond less far",
        f"{_KERNELS}/conditions.py",
        "keys[slot, last] + rule[look_behind + at.LOOK_BEHIND_US] >= time_us",
        "keys[slot, last] + rule[look_behind + at.LOOK_BEHIND_US] > time_us",
    ),
    Fault(
        "a match prunes nothing",
        f"{_KERNELS}/selection.py",
        "prune_before = max(prune_before, skip_target(rule, runs, run))",
        "prune_before = max(prune_before, at.NONE)",
    ),
    Fault(
        "`->` ignores an event that it could take",
        f"{_KERNELS}/conditions.py",
        "if mode == _NEXT and not early",
        "if mode == _NEXT and early",
    ),
    Fault(
        "UNTIL does not release an exclusion",
        f"{_KERNELS}/conditions.py",
        "until != at.NONE and holds(",
        "until < at.NONE and holds(",
    ),
    Fault(
        "ties are left as they arrived",
        "cep/engine/order/ordering.py",
        "rows[places] = rows[places][order]",
        "rows[places] = rows[places]",
    ),
    Fault(
        "a key forgets its look-behinds with its last run",
        "cep/engine/matching/matcher.py",
        "live = live | has_open_look_behinds(self.rule.tables, self.pool.keys, watermark_us)",
        "pass",
    ),
    Fault(
        "suppression ends too early",
        "cep/engine/state/suppression.py",
        "return self.until_us > watermark_us if self.length_us else False",
        "return False",
    ),
    Fault(
        "a day begins again after a restart",
        "cep/engine/state/suppression.py",
        "before = np.where(days == known_days[number], known_counts[number], 0)",
        "before = np.zeros_like(days)",
    ),
    Fault(
        "a rule does not wait for matches that are held back",
        "cep/compiler/analysis/match_streams.py",
        "return rule.window.span_us if isinstance(rule.window, ir.Window) else None",
        "return 0 if isinstance(rule.window, ir.Window) else None",
        only="chains",
    ),
    Fault(
        "a rule over a rule that waits does not wait",
        "cep/program/chains.py",
        "lags[feed.source] + feed.stream.held_us)",
        "feed.stream.held_us)",
        only="chains",
    ),
    Fault(
        "a timeout is an event for the rules that read its rule",
        "cep/engine/chains/fed_matchers.py",
        "keep = pc.and_(keep, pc.equal(matches.column(OUTCOME), MATCH))",
        "pass",
        only="chains",
    ),
    Fault(
        "a match with a row for each event is as many events",
        "cep/engine/chains/fed_matchers.py",
        "keep = pc.and_(keep, pc.equal(pc.fill_null(matches.column(EVENT_NUMBER), 0), 0))",
        "pass",
        only="chains",
    ),
)
