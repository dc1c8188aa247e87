"""The parts of a pipeline and the ways of rows between them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ..graph import quarantined
from ..model import Declared, Sink, Source, View

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
