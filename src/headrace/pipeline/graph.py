"""What needs what: the names in a query, the views a sink stands on, cycles. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from .model import FILE_SINKS, Declared, Expectation, Problem, Sink, Source, did_you_mean

_SQL_WORDS: Final = re.compile(
    r"--[^\n]*|/\*.*?\*/|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`([^`]*)`|([A-Za-z_]\w*)", re.DOTALL
)


def names_in_sql(sql: str, known: Sequence[str]) -> tuple[str, ...]:
    """Which of ``known`` a query names, in their order; texts and comments are left out."""
    words = {
        (found[1] or found[2]).lower() for found in _SQL_WORDS.finditer(sql) if found[1] or found[2]
    }
    return tuple(name for name in known if name.lower() in words)


def upstream(declared: Declared, name: str) -> list[str]:
    """``name`` and everything it stands on, what is needed first comes first."""
    order: list[str] = []
    begun: set[str] = set()

    def visit(each: str) -> None:
        if each in begun:  # also where views use each other in a circle, which is told elsewhere
            return
        begun.add(each)
        view = declared.views.get(each)
        for needed in view.inputs if view is not None else ():
            visit(needed)
        order.append(each)

    visit(name)
    return order


def upstream_of(declared: Declared, sink: Sink) -> list[str]:
    """The sources and views that a sink's rows come from, as ``upstream``."""
    return upstream(declared, sink.of or quarantined(declared, sink)[0])


def sources_of(declared: Declared, name: str) -> list[Source]:
    """The sources that a view or source stands on."""
    found = [declared.sources.get(each) for each in upstream(declared, name)]
    return [each for each in found if each is not None]


def streaming_of(declared: Declared, sink: Sink) -> list[Source]:
    """The sources that a sink's rows come from as streams."""
    found = sources_of(declared, sink.of or quarantined(declared, sink)[0])
    return [each for each in found if each.streaming]


def quarantined(declared: Declared, sink: Sink) -> tuple[str, list[Expectation]]:
    """The view whose rejected rows a sink gets, and by which expectations; "" if there is none."""
    for view in declared.views.values():
        expectations = [each for each in view.expectations if each.to == sink.name]
        if expectations:
            return view.name, expectations
    return "", []


def check_graph(declared: Declared) -> list[Problem]:
    """What is wrong between the parts of a pipeline."""
    return [
        *_check_inputs(declared),
        *_check_sinks(declared),
        *_check_order(declared),
        *_check_expectations(declared),
        *_check_watermarks(declared),
        *_check_places(declared),
    ]


def _check_inputs(declared: Declared) -> Iterator[Problem]:
    known = [*declared.sources, *declared.views]
    complete = True
    for view in declared.views.values():
        for name in view.inputs:
            if name not in known:
                complete = False
                hint = did_you_mean(name, known)
                yield Problem(
                    view.place, f"view {view.name!r} uses {name!r}, which is not defined{hint}"
                )
    if complete:
        yield from _check_cycles(declared)


def _check_cycles(declared: Declared) -> Iterator[Problem]:
    done: set[str] = set()
    for start in declared.views:
        trail: list[str] = []

        def visit(name: str, trail: list[str] = trail) -> list[str]:
            if name in trail:
                return [*trail[trail.index(name) :], name]
            view = declared.views.get(name)
            if view is None or name in done:
                return []
            trail.append(name)
            for needed in view.inputs:
                if cycle := visit(needed):
                    return cycle
            trail.pop()
            done.add(name)
            return []

        if cycle := visit(start):
            way = " → ".join(cycle)
            text = (
                f"views use each other in a circle: {way}; where a column has the name of a view, give "
                "'from'"
            )
            yield Problem(declared.views[cycle[0]].place, text)
            return


def _check_sinks(declared: Declared) -> Iterator[Problem]:
    known = [*declared.sources, *declared.views]
    for sink in declared.sinks.values():
        view, _ = quarantined(declared, sink)
        if not sink.of and not view:
            text = f"sink {sink.name!r} has no 'from', and no expectation sends rows to it"
            yield Problem(sink.place, text)
        elif sink.of and view:
            text = (
                f"sink {sink.name!r} has a 'from', and expectations of view {view!r} send rows to it: "
                "one only"
            )
            yield Problem(sink.place, text)
        elif sink.of and sink.of not in known:
            hint = did_you_mean(sink.of, known)
            yield Problem(
                sink.place, f"sink {sink.name!r} is from {sink.of!r}, which is not defined{hint}"
            )
        elif not any(each.streaming for each in sources_of(declared, sink.of or view)):
            text = f"sink {sink.name!r} stands on no streaming source, so there is nothing to run"
            yield Problem(sink.place, text)


def _check_order(declared: Declared) -> Iterator[Problem]:
    """Whether what a query waits for is there, and ends before it."""
    for sink in declared.sinks.values():
        for name in sink.after:
            if name not in declared.sinks:
                hint = did_you_mean(name, declared.sinks)
                yield Problem(
                    sink.place, f"sink {sink.name!r} is after {name!r}, which is not defined{hint}"
                )
            elif name in _before(declared, sink.name) and sink.name in _before(declared, name):
                yield Problem(sink.place, f"sinks {sink.name!r} and {name!r} wait for each other")


def _before(declared: Declared, name: str) -> set[str]:
    """The sinks that a sink waits for, and those that they wait for."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        for each in declared.sinks[waiting.pop()].after:
            if each in declared.sinks and each not in found:
                found.add(each)
                waiting.append(each)
    return found


def _check_expectations(declared: Declared) -> Iterator[Problem]:
    owners: dict[str, str] = {}
    for view in declared.views.values():
        for each in view.expectations:
            if each.to and each.to not in declared.sinks:
                hint = did_you_mean(each.to, declared.sinks)
                yield Problem(
                    each.place, f"rows are to go to sink {each.to!r}, which is not defined{hint}"
                )
            elif each.to and owners.setdefault(each.to, view.name) != view.name:
                other = owners[each.to]
                text = (
                    f"views {other!r} and {view.name!r} send rows to sink {each.to!r}: "
                    "one sink for each view"
                )
                yield Problem(each.place, text)


def _check_watermarks(declared: Declared) -> Iterator[Problem]:
    """Whether each is of rows that come as a stream, and the only one on their way: Spark takes no second."""
    for view in declared.views.values():
        if view.watermark is None:
            continue
        place = view.watermark.place
        if not any(each.streaming for each in sources_of(declared, view.name)):
            text = (
                f"view {view.name!r} has a watermark, and stands on no streaming source: rows of a table "
                "are never late"
            )
            yield Problem(place, text)
        for name in upstream(declared, view.name):
            other = declared.views.get(name)
            if other is None or other is view or other.watermark is None:
                continue
            text = (
                f"view {view.name!r} has a watermark, and stands on view {name!r}, which has one: the first "
                "holds for all that stands on it"
            )
            yield Problem(place, text)


def _check_places(declared: Declared) -> Iterator[Problem]:
    """Whether each file sink has a folder of its own: the numbers of its batches are counted there."""
    owners: dict[str, str] = {}
    for sink in declared.sinks.values():
        path = next((each for key, each in sink.options.items() if key.lower() == "path"), "")
        if sink.format.lower() not in FILE_SINKS or not path:
            continue
        owner = owners.setdefault(path.rstrip("/"), sink.name)
        if owner != sink.name:
            text = f"sinks {owner!r} and {sink.name!r} write to {path}: a folder for each"
            yield Problem(sink.place, text)
