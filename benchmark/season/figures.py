"""Line charts as SVG: no library, no script, no font of its own, the same bytes each time."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

#: told apart by people who do not see red and green (Okabe and Ito), and by their dashes
_LINES = (
    ("#0072b2", ""),
    ("#d55e00", "7 3"),
    ("#009e73", "2 3"),
    ("#cc79a7", "9 3 2 3"),
    ("#56b4e9", "12 4"),
    ("#e69f00", "4 2"),
    ("#000000", "1 3"),
)
_WIDTH, _HEIGHT = 720, 380
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 520, 24, 320

Point = tuple[float, float]


@dataclass(frozen=True)
class Axis:
    """From `low` to `high`, with a tick every `step`, labelled in `unit` ("%": as a share)."""

    title: str
    low: float
    high: float
    step: float
    unit: str = ""

    def label(self, value: float) -> str:
        """A tick's text."""
        return f"{value:.0%}" if self.unit == "%" else f"{value:g}{self.unit}"

    def ticks(self) -> list[float]:
        """Where ticks stand."""
        count = round((self.high - self.low) / self.step)
        return [self.low + i * self.step for i in range(count + 1)]

    def place(self, value: float, start: float, end: float) -> float:
        """Where `value` lies between `start` and `end`, kept inside."""
        inside = min(max(value, self.low), self.high)
        return start + (end - start) * (inside - self.low) / (self.high - self.low)


def line_chart(title: str, x: Axis, y: Axis, series: Mapping[str, Sequence[Point]]) -> str:
    """A chart of one line a series, named at its right."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'font-family="system-ui, sans-serif" font-size="13" fill="#1d2330">',
        f"<title>{html.escape(title)}</title>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
        *_grid(x, y),
    ]
    for index, (name, points) in enumerate(series.items()):
        parts += _series(index, name, points, x, y)
    return "\n".join([*parts, "</svg>", ""])


def _grid(x: Axis, y: Axis) -> list[str]:
    lines = []
    for value in y.ticks():
        at = y.place(value, _BOTTOM, _TOP)
        lines.append(_rule(_LEFT, at, _RIGHT, at))
        lines.append(_text(_LEFT - 8, at + 4, y.label(value), "end"))
    for value in x.ticks():
        at = x.place(value, _LEFT, _RIGHT)
        lines.append(_rule(at, _TOP, at, _BOTTOM))
        lines.append(_text(at, _BOTTOM + 18, x.label(value), "middle"))
    lines.append(_text((_LEFT + _RIGHT) / 2, _BOTTOM + 42, x.title, "middle"))
    middle = (_TOP + _BOTTOM) / 2
    turned = f' transform="rotate(-90 16 {middle:g})"'
    return [*lines, _text(16, middle, y.title, "middle", turned)]


def _series(index: int, name: str, points: Sequence[Point], x: Axis, y: Axis) -> list[str]:
    colour, dashes = _LINES[index % len(_LINES)]
    style = f'fill="none" stroke="{colour}" stroke-width="2.5"'
    style += f' stroke-dasharray="{dashes}"' if dashes else ""
    places = " ".join(
        f"{x.place(a, _LEFT, _RIGHT):.1f},{y.place(b, _BOTTOM, _TOP):.1f}" for a, b in points
    )
    at = _TOP + 12 + 24 * index
    key = f"M{_RIGHT + 16} {at}h30"
    return [
        f'<polyline points="{places}" {style}/>',
        f'<path d="{key}" {style}/>',
        _text(_RIGHT + 54, at + 4, name, "start"),
    ]


def _rule(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" stroke="#d9dde4"/>'


def _text(x: float, y: float, text: str, anchor: str, more: str = "") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>'
        f"{html.escape(text, quote=False)}</text>"
    )
