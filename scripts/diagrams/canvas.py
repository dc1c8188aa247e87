"""Boxes, rows of messages, arrows and words on a sheet, as SVG. Lengths are pixels, from the upper left."""

from __future__ import annotations

from html import escape
from typing import Final

INK: Final = "#12323d"
QUIET: Final = "#5b7580"
BLUE: Final = "#0b6e8a"
GREEN: Final = "#2f7d4f"
AMBER: Final = "#b06a00"
RED: Final = "#b3392f"
_PALE: Final = {
    BLUE: "#e3f2f6",
    GREEN: "#e6f4ea",
    AMBER: "#fdf1dc",
    QUIET: "#eef2f4",
    RED: "#fbe9e7",
}

_BARS: Final = {BLUE: "#a9d0dc"}
"""Paler than the colour, and darker than the ground of a box: bars have no border."""


class Canvas:
    """A sheet of ``width`` by ``height``. ``title`` is what a reader hears who does not see it."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self._size = (width, height)
        self._title = title
        self._parts: list[str] = []

    def box(
        self, x: int, y: int, width: int, height: int, *lines: str, colour: str = BLUE,
        is_dashed: bool = False,
    ) -> None:  # fmt: skip
        """A box with lines in its middle; the first one is bold."""
        dash = ' stroke-dasharray="6 4"' if is_dashed else ""
        self._parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="8" fill="{_PALE[colour]}" '
            f'stroke="{colour}" stroke-width="1.5"{dash}/>'
        )
        top = y + height / 2 - (len(lines) - 1) * 9 + 5
        for number, line in enumerate(lines):
            self.text(
                x + width // 2, round(top + 18 * number), line,
                anchor="middle", is_bold=number == 0, size=14 if number == 0 else 12,
            )  # fmt: skip

    def frame(self, x: int, y: int, width: int, height: int, name: str) -> None:
        """A place that holds others: a dashed line around it, its name above to the left."""
        self._parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="12" fill="none" '
            f'stroke="{QUIET}" stroke-dasharray="3 4"/>'
        )
        self.text(x + 12, y + 20, name, colour=QUIET, size=12)

    def row(
        self, x: int, y: int, cells: list[str], *, width: int = 34, colours: list[str] | None = None
    ) -> None:
        """Messages side by side, as they lie in a stream."""
        for number, cell in enumerate(cells):
            colour = colours[number] if colours else BLUE
            left = x + number * width
            self._parts.append(
                f'<rect x="{left}" y="{y}" width="{width - 4}" height="30" rx="4" '
                f'fill="{_PALE[colour]}" stroke="{colour}"/>'
            )
            self.text(left + (width - 4) // 2, y + 20, cell, anchor="middle", size=12)

    def arrow(
        self, x1: int, y1: int, x2: int, y2: int, label: str = "", *, colour: str = INK,
        is_dashed: bool = False, above: int = 8,
    ) -> None:  # fmt: skip
        """An arrow with its label above the middle."""
        dash = ' stroke-dasharray="5 4"' if is_dashed else ""
        self._parts.append(
            f'<path d="M{x1} {y1}L{x2} {y2}" stroke="{colour}" stroke-width="1.6" fill="none" '
            f'marker-end="url(#{colour[1:]})"{dash}/>'
        )
        if label:
            self.text((x1 + x2) // 2, (y1 + y2) // 2 - above, label, anchor="middle", size=12,
                      colour=colour)  # fmt: skip

    def bar(
        self, x: int, y: int, width: int, height: int, colour: str, *, is_pale: bool = False
    ) -> None:
        """A part of a bar, without a border."""
        fill = _BARS.get(colour, colour) if is_pale else colour
        self._parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="{fill}"/>'
        )

    def line(self, x1: int, y1: int, x2: int, y2: int) -> None:
        """A thin line behind what is drawn after it."""
        self._parts.append(f'<path d="M{x1} {y1}L{x2} {y2}" stroke="{_PALE[QUIET]}"/>')

    def text(
        self, x: int, y: int, words: str, *, anchor: str = "start", is_bold: bool = False,
        size: int = 13, colour: str = INK,
    ) -> None:  # fmt: skip
        """A line of words."""
        weight = ' font-weight="600"' if is_bold else ""
        self._parts.append(
            f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-size="{size}"{weight} '
            f'fill="{colour}">{escape(words)}</text>'
        )

    def svg(self) -> str:
        """The picture. Its ground is white: it reads on dark pages, too."""
        width, height = self._size
        heads = "".join(
            f'<marker id="{colour[1:]}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" '
            f'markerHeight="8" orient="auto"><path d="M0 0L8 4L0 8z" fill="{colour}"/></marker>'
            for colour in (INK, QUIET, BLUE, GREEN, AMBER, RED)
        )
        begin = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
            f'font-family="system-ui, sans-serif"><title>{escape(self._title)}</title>'
            f"<defs>{heads}</defs>"
            f'<rect width="{width}" height="{height}" rx="14" fill="#fff"/>'
        )
        return "\n".join([begin, *self._parts, "</svg>\n"])
