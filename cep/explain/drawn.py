"""The automaton of a rule as SVG: states from left to right, by the number of events that lead to them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from cep.compiler.compile import CompiledRule
from cep.explain import svg
from cep.explain.feeds import fed
from cep.explain.picture import MATCH, Arrow, arrows_of, states_of

_RADIUS = 20.0
_LETTER = 6.4
"""Width of a letter, on average, in pixels."""

_LEAST_COLUMN = 96.0
_MARGIN = 48.0

_MARKER = (
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
    'orient="auto-start-reverse"><path d="M0 0L8 4L0 8z" class="tip"/></marker></defs>'
)


def drawn(rules: Iterable[CompiledRule]) -> str:
    """Return the automata of `rules` as one SVG document, one below the other.

    A dashed arrow is a way without an event that is taken: an event that is ignored, or a time that is over.
    """
    rules = tuple(rules)
    body, top, widest = [_MARKER], 0.0, 320.0
    for number, rule in enumerate(rules):
        reads = [label for _, reader, label in fed(rules) if reader == number]
        picture = _Picture(states_of(rule.automaton), arrows_of(rule.automaton))
        title = ", ".join([rule.name, *(f"reads {label}" for label in reads)])
        body += [svg.label(16, top + 24, title, "title"), f'<g transform="translate(0 {top + 32:.0f})">']
        body += [*picture.lines(), "</g>"]
        top += 32 + picture.height
        widest = max(widest, picture.width, 32 + 7.2 * len(title))
    names = ", ".join(rule.name for rule in rules)
    return svg.document(widest, top, f"automaton of {names}", body)


class _Picture:
    """Places of the states of one automaton, side by side, and the lines that draw it.

    An arrow to the next state is straight. Other arrows are arcs: forward above the states, back below them.
    """

    def __init__(self, labels: dict[str, str], arrows: Iterable[Arrow]) -> None:
        self.labels = labels
        self.arrows = _joined(arrows)
        self.column = {state: number for number, state in enumerate(_in_order(list(labels), self.arrows))}
        spans = [self._span(arrow) for arrow in self.arrows]
        has_loop = any(arrow.start == arrow.end and not arrow.is_epsilon for arrow in self.arrows)
        above = max(40.0, 72.0 if has_loop else 0.0, max(_height(max(span, 0)) for span in spans) + 24)
        below = max(48.0, 104.0 if any(" " in text for text in labels.values()) else 88.0)
        self.y = above
        self.x = self._places()
        self.width = self.x[MATCH] + 2 * _MARGIN
        self.height = above + max(below, max(_height(min(span, 0)) for span in spans) + 32)

    def _span(self, arrow: Arrow) -> int:
        return self.column[arrow.end] - self.column[arrow.start]

    def _places(self) -> dict[str, float]:
        """Return the x of each state: words of straight arrows and loops fit between two states."""
        places, x = dict[str, float](), _MARGIN
        for state, column in self.column.items():
            places[state] = x
            words = [
                line
                for arrow in self.arrows
                if self.column[arrow.start] == column and self._span(arrow) in (0, 1)
                for line in arrow.label.split("\n")
            ]
            longest = max((_LETTER * len(line) for line in words), default=0.0)
            x += max(_LEAST_COLUMN, longest + 2 * _RADIUS + 24)
        return places

    def lines(self) -> Iterator[str]:
        """Yield the elements of the picture: arrows below, states above them."""
        for arrow in self.arrows:
            yield from self._loop(arrow) if arrow.start == arrow.end else self._way(arrow)
        for state, x in self.x.items():
            kind = "state end" if state == MATCH else "state"
            yield f'<circle cx="{x:.1f}" cy="{self.y:.1f}" r="{_radius(state):.1f}" class="{kind}"/>'
            number, *absent = self.labels[state].split(" ")
            yield svg.label(x, self.y + 4, number, anchor="middle")
            if absent:
                yield svg.label(x, self.y + _RADIUS + 56, " ".join(absent), "soft", "middle")

    def _loop(self, arrow: Arrow) -> Iterator[str]:
        # An event that is taken goes around above its state, one that is ignored below.
        side = 1 if arrow.is_epsilon else -1
        x, y = self.x[arrow.start], self.y
        near, far = y + 18 * side, y + 52 * side
        d = f"M{x - 9:.1f} {near:.1f}C{x - 24:.1f} {far:.1f} {x + 24:.1f} {far:.1f} {x + 9:.1f} {near:.1f}"
        yield svg.path(d, _kind(arrow), "tip")
        yield from _words(arrow, x, y + (60 if side > 0 else -48), side)

    def _way(self, arrow: Arrow) -> Iterator[str]:
        x, to_x, y = self.x[arrow.start], self.x[arrow.end], self.y
        span = self._span(arrow)
        if span == 1:
            yield svg.path(f"M{x + _RADIUS:.1f} {y:.1f}H{to_x - _radius(arrow.end):.1f}", _kind(arrow), "tip")
            yield from _words(arrow, (x + _RADIUS + to_x - _radius(arrow.end)) / 2, y - 7, -1)
            return
        side = -1 if span > 0 else 1
        start, end = y + side * _RADIUS, y + side * _radius(arrow.end)
        height = side * _height(span)
        top = y + height * 4 / 3  # a curve reaches three quarters of the way to its handles
        left, right = f"{x + 6:.1f}", f"{to_x - 6:.1f}"
        d = f"M{left} {start:.1f}C{left} {top:.1f} {right} {top:.1f} {right} {end:.1f}"
        yield svg.path(d, _kind(arrow), "tip")
        yield from _words(arrow, (x + to_x) / 2, y + height + (16 if side > 0 else -10), side)


def _height(span: int) -> float:
    """Return how far the arc over some states, or back below them, reaches; 0 for other arrows."""
    return 36.0 + 24.0 * abs(span) if span > 1 or span < 0 else 0.0


def _radius(state: str) -> float:
    return 1.35 * _RADIUS if state == MATCH else _RADIUS


def _words(arrow: Arrow, x: float, y: float, side: int) -> Iterator[str]:
    """Yield the lines of a label: from y on downwards if `side` is 1, or upwards so that the last is at y."""
    lines = arrow.label.split("\n")
    top = y if side > 0 else y - 13 * (len(lines) - 1)
    kind = "soft" if arrow.is_epsilon else ""
    for number, words in enumerate(lines):
        yield svg.label(x, top + 13 * number, words, kind, "middle")


def _kind(arrow: Arrow) -> str:
    return "line dashed" if arrow.is_epsilon else "line"


def _joined(arrows: Iterable[Arrow]) -> list[Arrow]:
    """Join the arrows that have the same ends and kind; a label has a line for each of them."""
    labels: dict[tuple[str, str, bool], list[str]] = defaultdict(list)
    for arrow in arrows:
        labels[arrow.start, arrow.end, arrow.is_epsilon].append(arrow.label)
    return [
        Arrow(start, end, "\n".join(words), is_epsilon) for (start, end, is_epsilon), words in labels.items()
    ]


def _in_order(states: Sequence[str], arrows: Sequence[Arrow]) -> list[str]:
    """Return the states in the order of the number of arrows that lead to them. `match` is the last."""
    found = [states[0]]
    for state in found:
        found += {
            arrow.end: None
            for arrow in arrows
            if arrow.start == state and arrow.end not in found and arrow.end != MATCH
        }
    return [*found, *(state for state in states if state not in found)]
