"""A graph as SVG: columns from the sources on, boxes and curves. Pure; nothing is loaded by it."""

from __future__ import annotations

from html import escape
from typing import Final, NamedTuple

from .parts import Graph, Part

_WIDTH: Final = 7.5  # pixels of a character
_HEIGHT: Final = 44
_GAP_X: Final = 64
_GAP_Y: Final = 18
_MARGIN: Final = 12
_COLOURS: Final = {"source": "#2b6cb0", "view": "#6b7280", "sink": "#2f855a"}
_STYLES: Final = {
    "rows": "",
    "rejected": ' stroke="#c05621" stroke-dasharray="5 4"',
    "after": ' stroke-dasharray="2 4"',
    "stream": ' stroke-dasharray="2 4"',
}


class Box(NamedTuple):
    """Where a part is drawn, in pixels."""

    x: float
    y: float
    width: float


def svg_of(graph: Graph) -> str:
    """A picture that stands by itself, in the colour of the text around it."""
    boxes = _boxes(graph)
    width = max((box.x + box.width for box in boxes.values()), default=0) + _MARGIN
    height = max((box.y + _HEIGHT for box in boxes.values()), default=0) + _MARGIN
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" font-family="sans-serif" font-size="13" '
        'fill="currentColor" stroke="currentColor">'
    )
    drawn = [head]
    for edge in graph.edges:
        begin, end = boxes[edge.begin], boxes[edge.end]
        drawn.append(f'<path fill="none"{_STYLES[edge.way]} d="{_curve(begin, end)}"/>')
    drawn += [_box(part, boxes[part.id]) for part in graph.parts]
    return "\n".join([*drawn, "</svg>", ""])


def _box(part: Part, box: Box) -> str:
    return (
        f'<g><title>{part.kind} {escape(part.name)}</title><rect x="{box.x:.0f}" y="{box.y:.0f}" rx="6" '
        f'width="{box.width:.0f}" height="{_HEIGHT}" fill="none" stroke-width="1.5" '
        f'stroke="{_COLOURS[part.kind]}"/>'
        f'<text stroke="none" font-weight="bold" x="{box.x + 10:.0f}" y="{box.y + 18:.0f}">'
        f"{escape(part.name)}</text>"
        f'<text stroke="none" opacity="0.75" x="{box.x + 10:.0f}" y="{box.y + 35:.0f}">'
        f"{escape(part.about)}</text></g>"
    )


def _curve(begin: Box, end: Box) -> str:
    """From the right side of a box to the left one of another; back around where that lies before it."""
    x, y = begin.x + begin.width, begin.y + _HEIGHT / 2
    to_x, to_y = end.x, end.y + _HEIGHT / 2
    reach = max(_GAP_X / 2, abs(to_x - x) / 2)
    return f"M{x:.0f} {y:.0f}C{x + reach:.0f} {y:.0f} {to_x - reach:.0f} {to_y:.0f} {to_x:.0f} {to_y:.0f}"


def _boxes(graph: Graph) -> dict[str, Box]:
    columns: list[list[Part]] = []
    for id_, column in _columns(graph).items():
        while len(columns) <= column:
            columns.append([])
        columns[column].append(graph.part(id_))
    boxes: dict[str, Box] = {}
    x = float(_MARGIN)
    for parts in columns:
        width = 20 + _WIDTH * max(max(len(each.name), len(each.about)) for each in parts)
        for row, part in enumerate(_in_order(graph, parts, boxes)):
            boxes[part.id] = Box(x, _MARGIN + row * (_HEIGHT + _GAP_Y), width)
        x += width + _GAP_X
    return boxes


def _columns(graph: Graph) -> dict[str, int]:
    """Each part stands one column behind the last one of those it gets rows of."""
    found: dict[str, int] = {}

    def column(id_: str) -> int:
        if id_ not in found:
            before = [
                each.begin
                for each in graph.edges
                if each.end == id_ and each.way in ("rows", "rejected")
            ]
            found[id_] = 1 + max(map(column, before), default=-1)
        return found[id_]

    for part in graph.parts:
        column(part.id)
    return found


def _in_order(graph: Graph, parts: list[Part], boxes: dict[str, Box]) -> list[Part]:
    """The parts of a column by the height of those before them, so that few curves cross."""

    def height(part: Part) -> float:
        ys = [boxes[e.begin].y for e in graph.edges if e.end == part.id and e.begin in boxes]
        return sum(ys) / len(ys) if ys else 0.0

    return sorted(parts, key=height)
