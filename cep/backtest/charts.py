"""Pictures of a backtest as SVG: alerts by day for each rule, the figures by value of a parameter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from cep.backtest.figures import Figures, percent, rate
from cep.explain import svg

_WIDTH, _LEFT, _RIGHT = 960.0, 200.0, 64.0
_BAND = 44.0
_CURVES = 150.0


def alerts_by_day(counts: Mapping[str, Mapping[str, int]], days: Sequence[str]) -> str:
    """Return bars for each rule and day; `counts` contains the alerts of each rule by day."""
    body: list[str] = []
    width = (_WIDTH - _LEFT - _RIGHT) / max(len(days), 1)
    y = 24.0
    for rule, of_days in counts.items():
        most = max(of_days.values(), default=0)
        body.append(svg.label(_LEFT - 12, y + _BAND - 14, _short(rule), "", "end"))
        body.append(svg.label(_WIDTH - _RIGHT + 8, y + _BAND - 14, f"{sum(of_days.values()):,}", "soft"))
        body += _bars(of_days, days, most, y, width)
        body.append(svg.path(f"M{_LEFT:.1f} {y + _BAND - 10:.1f}H{_WIDTH - _RIGHT:.1f}"))
        y += _BAND + 8
    step = max(1, -(-len(days) // 8))
    for number in range(0, len(days), step):
        body.append(svg.label(_LEFT + (number + 0.5) * width, y + 6, days[number][5:], "soft", "middle"))
    return svg.document(_WIDTH, y + 20, "alerts by day", body)


def _bars(
    of_days: Mapping[str, int], days: Sequence[str], most: int, top: float, width: float
) -> Iterator[str]:
    for number, day in enumerate(days):
        n = of_days.get(day, 0)
        if n:
            height = (_BAND - 12) * n / most
            x, y = _LEFT + (number + 0.1) * width, top + _BAND - 10 - height
            yield (
                f"<g><title>{svg.escape(day)}: {n:,}</title>"
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(0.8 * width, 1):.1f}" height="{height:.1f}" '
                'class="match"/></g>'
            )


def curves(title: str, rows: Sequence[tuple[str, Figures]]) -> str:
    """Return the alerts a day by value of a parameter and, if it is known, recall and precision below."""
    series: dict[str, list[tuple[float | None, str]]] = {
        "alerts a day": [(one.a_day, rate(one.a_day)) for _, one in rows],
        "recall": [(one.recall, percent(one.recall)) for _, one in rows],
        "precision": [(one.precision, percent(one.precision)) for _, one in rows],
    }
    body = [svg.label(24, 20, title, "title")]
    y = 40.0
    step = (_WIDTH - _LEFT - _RIGHT) / max(len(rows) - 1, 1)
    for name, points in series.items():
        if all(value is None for value, _ in points):
            continue
        most = max((value for value, _ in points if value is not None), default=1.0)
        most = 1.0 if name != "alerts a day" else most or 1.0
        body.append(svg.label(_LEFT - 12, y + _CURVES / 2, name, "", "end"))
        body.append(svg.path(f"M{_LEFT:.1f} {y + _CURVES - 20:.1f}H{_WIDTH - _RIGHT:.1f}"))
        body += _curve(points, [value for value, _ in rows], most, y, step)
        y += _CURVES
    free = 0.0
    for number, (value, _) in enumerate(rows):
        x = _LEFT + number * step
        if x >= free:
            body.append(svg.label(x, y + 2, value, "soft", "middle"))
            free = x + 7.0 * len(value) + 12
    return svg.document(_WIDTH, y + 20, title, body)


def _curve(
    points: Sequence[tuple[float | None, str]], values: Sequence[str], most: float, top: float, step: float
) -> Iterator[str]:
    height, floor = _CURVES - 36, top + _CURVES - 20
    places = [
        (_LEFT + number * step, floor - height * value / most, words, values[number])
        for number, (value, words) in enumerate(points)
        if value is not None
    ]
    yield svg.path("M" + "L".join(f"{x:.1f} {y:.1f}" for x, y, _, _ in places), "line bar")
    free = 0.0
    for x, y, words, value in places:
        about = svg.escape(f"{value}: {words}")
        yield f'<g><title>{about}</title><circle cx="{x:.1f}" cy="{y:.1f}" r="4" class="match"/></g>'
        if x >= free:  # figures that would cover each other are left to the titles
            yield svg.label(x, y - 8, words, "soft", "middle")
            free = x + 7.0 * len(words) + 12


def _short(name: str) -> str:
    return name if len(name) <= 26 else name[:25] + "…"
