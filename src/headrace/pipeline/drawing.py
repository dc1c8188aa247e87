"""A pipeline as a picture: its parts and the ways of rows, as a tree, as Mermaid or as SVG. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any, Final, Literal, NamedTuple

from .graph import quarantined
from .model import Declared, Sink, Source, View

Kind = Literal["source", "view", "sink"]
Way = Literal["rows", "rejected", "after", "stream"]


@dataclass(frozen=True)
class Part:
    """A source, view or sink. ``about``: what it is, in a few words."""

    kind: Kind
    name: str
    about: str

    @property
    def id(self) -> str:
        """Its own among all parts: a sink may have the name of a view."""
        return f"{self.kind}_{self.name}"


@dataclass(frozen=True)
class Edge:
    """From part to part, by their ids.

    ``way``: ``rows`` go there, or those that an expectation ``rejected``; a query runs ``after`` another
    one; or what a sink writes to a ``stream`` is read again.
    """

    begin: str
    end: str
    way: Way = "rows"


@dataclass(frozen=True)
class Graph:
    """All parts, sources first, and all edges."""

    parts: tuple[Part, ...]
    edges: tuple[Edge, ...]

    def part(self, id_: str) -> Part:
        """The part of an id."""
        return next(each for each in self.parts if each.id == id_)

    def document(self) -> dict[str, Any]:
        """For programs."""
        return {
            "parts": [
                {"id": p.id, "kind": p.kind, "name": p.name, "about": p.about} for p in self.parts
            ],
            "edges": [{"from": e.begin, "to": e.end, "way": e.way} for e in self.edges],
        }


def graph_of(declared: Declared) -> Graph:
    """The graph of a pipeline. No option is shown but streams, buckets and paths: others may be secret."""
    sources = [Part("source", each.name, _about_source(each)) for each in declared.sources.values()]
    views = [Part("view", each.name, _about_view(each)) for each in declared.views.values()]
    sinks = [Part("sink", each.name, _about_sink(each)) for each in declared.sinks.values()]
    return Graph((*sources, *views, *sinks), tuple(dict.fromkeys(_edges(declared))))


def _edges(declared: Declared) -> Iterator[Edge]:
    def upper(name: str) -> str:
        return f"{'source' if name in declared.sources else 'view'}_{name}"

    for view in declared.views.values():
        for name in view.inputs:
            yield Edge(upper(name), f"view_{view.name}")
    for sink in declared.sinks.values():
        rejecting, _ = quarantined(declared, sink)
        if rejecting:
            yield Edge(f"view_{rejecting}", f"sink_{sink.name}", "rejected")
        else:
            yield Edge(upper(sink.of), f"sink_{sink.name}")
        for name in sink.after:
            yield Edge(f"sink_{name}", f"sink_{sink.name}", "after")
        written = _streams(sink)
        for source in declared.sources.values():
            if written & _streams(source):
                yield Edge(f"sink_{sink.name}", f"source_{source.name}", "stream")


def _streams(part: Source | Sink) -> set[str]:
    """The streams that a part reads or writes."""
    if part.format != "jetstream":
        return set()
    options = {name.lower(): value for name, value in part.options.items()}
    named = {each.strip() for each in options.get("stream", "").split(",")} - {""}
    return named | ({f"KV_{options['bucket']}"} if options.get("bucket") else set())


def _about_source(source: Source) -> str:
    what = _place(source.options) or source.format
    return what if source.streaming else f"table of {what}"


def _about_view(view: View) -> str:
    how = f"{view.function.name}()" if view.function is not None else "SQL"
    count = len(view.expectations)
    told = [how, f"{count} expectation{'' if count == 1 else 's'}" if count else ""]
    told.append(f"watermark of {view.watermark.column}" if view.watermark is not None else "")
    return ", ".join(filter(None, told))


def _about_sink(sink: Sink) -> str:
    if sink.function is not None:
        return f"{sink.function.name}()"
    place = _place(sink.options)
    return place if sink.format == "jetstream" else " ".join(filter(None, (sink.format, place)))


def _place(options: Mapping[str, str]) -> str:
    given = {name.lower(): value for name, value in options.items()}
    for name, word in (("stream", "stream "), ("bucket", "bucket "), ("path", "")):
        if given.get(name):
            return f"{word}{given[name]}"
    return ""


def tree_of(graph: Graph) -> list[str]:
    """The lines of the tree. What was shown before is only named again."""
    shown: set[str] = set()
    lines: list[str] = []
    for part in graph.parts:
        if part.kind == "source":
            lines += _lines(graph, part.id, shown)
    for edge in graph.edges:
        if edge.way in ("after", "stream"):
            begin, end = graph.part(edge.begin), graph.part(edge.end)
            verb = "runs before" if edge.way == "after" else "writes what is read by"
            lines.append(f"{begin.kind} {begin.name} {verb} {end.kind} {end.name}")
    return lines


def _lines(graph: Graph, id_: str, shown: set[str]) -> Iterator[str]:
    part = graph.part(id_)
    yield f"{part.name}  {part.kind}, {part.about}"
    yield from _below(graph, id_, shown, "")


def _below(graph: Graph, id_: str, shown: set[str], front: str) -> Iterator[str]:
    shown.add(id_)
    edges = [each for each in graph.edges if each.begin == id_ and each.way in ("rows", "rejected")]
    for number, edge in enumerate(edges, 1):
        is_last = number == len(edges)
        was_shown = edge.end in shown and bool(_ways_on(graph, edge.end))
        yield f"{front}{'└─ ' if is_last else '├─ '}{_named(graph, edge, was_shown=was_shown)}"
        if not was_shown:
            yield from _below(graph, edge.end, shown, f"{front}{'   ' if is_last else '│  '}")


def _ways_on(graph: Graph, id_: str) -> list[Edge]:
    return [each for each in graph.edges if each.begin == id_]


def _named(graph: Graph, edge: Edge, *, was_shown: bool) -> str:
    part = graph.part(edge.end)
    rejected = ", rejected rows" if edge.way == "rejected" else ""
    return f"{part.name}  {part.kind}, {part.about}{rejected}{' (see above)' if was_shown else ''}"


_SHAPES: Final = {"source": ("[(", ")]"), "view": ("[", "]"), "sink": ("[/", "/]")}
_ARROWS: Final = {
    "rows": "-->",
    "rejected": "-. rejected .->",
    "after": "-. before .->",
    "stream": "-. stream .->",
}


def mermaid_of(graph: Graph) -> str:
    """The text of a flowchart."""
    lines = ["flowchart LR", *map(_part, graph.parts), *map(_edge, graph.edges)]
    return "\n    ".join(lines) + "\n"


def _part(part: Part) -> str:
    begin, end = _SHAPES[part.kind]
    return f'{part.id}{begin}"{_text(part.name)}<br/>{_text(part.about)}"{end}'


def _edge(edge: Edge) -> str:
    return f"{edge.begin} {_ARROWS[edge.way]} {edge.end}"


def _text(text: str) -> str:
    """Mermaid's own entities: a quote would end the label, < would begin a tag."""
    for sign, entity in (("#", "#35;"), ('"', "#quot;"), ("<", "#lt;"), (">", "#gt;")):
        text = text.replace(sign, entity)
    return text


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
