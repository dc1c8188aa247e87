"""A graph as a tree for terminals: each source with what stands on it. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from .parts import Edge, Graph


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
