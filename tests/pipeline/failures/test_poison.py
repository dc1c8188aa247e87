"""What a search for bad messages does, without Spark; whole in ``tests/spark/test_pipeline_poison.py``."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import ConfigurationError
from headrace.pipeline.checking.failed_batch import NotSearchedError, Range, failed_batch
from headrace.pipeline.checkpoints.checkpoint import (
    Generation,
    Skipped,
    checkpoint_of,
    file_of,
    read_skipped,
    skip,
)
from headrace.pipeline.declaring.reading import read
from headrace.pipeline.failures.causes import Poison, Verdict
from headrace.pipeline.failures.poison import FOUND_MAX, Search
from headrace.pipeline.model import Declared, Place

from ..conftest import ORDERS

VIEW = '[views.v]\nsql = "SELECT * FROM orders"\notherwise = "quarantine"\nletters = "dead"\n'
TEXT = ORDERS.replace('from = "orders"', 'from = "v"') + VIEW


def plan(generation: Generation, *ends: dict[str, Any] | None) -> None:
    """Batches that were planned; all but the last are finished."""
    for kind in ("offsets", "commits"):
        (Path(generation.path) / kind).mkdir(parents=True, exist_ok=True)
    for number, end in enumerate(ends):
        line = json.dumps(end) if end is not None else "-"
        (Path(generation.path) / "offsets" / str(number)).write_text(f"v1\n{{}}\n{line}")
    for number in range(len(ends) - 1):
        (Path(generation.path) / "commits" / str(number)).write_text("v1\n{}")


def at(seq: int, **more: Any) -> dict[str, Any]:
    return {"epoch": "e", "seq": seq, "stream": "ORDERS", "v": 1, **more}


@pytest.fixture
def declared(write: Callable[..., Path]) -> Declared:
    return read(write(TEXT))


class Trying(Search):
    """A search in which these sequences fail."""

    def __init__(self, declared: Declared, bad: set[int]) -> None:
        self.generation = checkpoint_of(declared, "out").current()
        super().__init__(_Session(), declared, declared.sinks["out"], self.generation, bool)  # type: ignore[arg-type]
        self.bad = bad
        self.aside: list[int] = []

    def _range_fails(self, of: Range, ranges: Sequence[Range]) -> bool:
        return any(of.first <= each <= of.last for each in self.bad)

    def _first_stored(self, of: Range) -> int:
        return 1

    def _named(self, of: Range, sequence: int, ranges: Sequence[Range]) -> Poison:
        return Poison("orders", of.stream, sequence, "s", "v", "", Place(Path("f")), "bad")

    def _quarantine(self, poison: Poison) -> None:
        self.aside.append(poison.sequence)


class _Session:
    def newSession(self) -> _Session:
        return self


def test_all_bad_messages_of_a_batch_are_put_aside_in_order(declared: Declared) -> None:
    plan(checkpoint_of(declared, "out").current(), at(100), at(2000))
    search = Trying(declared, {50, 101, 777, 778, 2000, 2001})
    verdict = search.run()
    assert [each.sequence for each in verdict.quarantined] == search.aside == [101, 777, 778, 2000]


def test_more_bad_messages_than_may_be_put_aside_put_none_aside(declared: Declared) -> None:
    plan(checkpoint_of(declared, "out").current(), at(100))
    search = Trying(declared, set(range(1, FOUND_MAX + 1)))
    assert len(search.run().quarantined) == FOUND_MAX
    search = Trying(declared, set(range(1, FOUND_MAX + 2)))
    verdict = search.run()
    assert (verdict.quarantined, verdict.failed, search.aside) == ((), None, [])
    assert f"more than {FOUND_MAX} messages of the batch fail, as message 51" in verdict.why


def test_a_batch_that_passes_has_no_bad_message(declared: Declared) -> None:
    plan(checkpoint_of(declared, "out").current(), at(100))
    assert Trying(declared, set()).run() == Verdict(
        why="which message it was is not known: each part of the batch passes by itself"
    )


def test_the_range_of_a_failed_batch_is_that_of_its_checkpoint(
    declared: Declared, write: Callable[..., Path]
) -> None:
    sink, generation = declared.sinks["out"], checkpoint_of(declared, "out").current()
    with pytest.raises(NotSearchedError, match="no batch was planned"):
        failed_batch(declared, sink, generation)
    plan(generation, at(100))
    assert failed_batch(declared, sink, generation) == [Range("orders", "ORDERS", 1, 100)]
    later = TEXT.replace("{ stream", '{ startingOffsets = "40", stream')
    assert failed_batch(read(write(later)), sink, generation) == [
        Range("orders", "ORDERS", 40, 100)
    ]
    timed = TEXT.replace("{ stream", '{ startingTimestamp = "2026-01-01T00:00:00Z", stream')
    with pytest.raises(NotSearchedError, match="where that begins is not kept"):
        failed_batch(read(write(timed)), sink, generation)
    plan(generation, at(100), at(130, source="orders"))
    assert failed_batch(declared, sink, generation) == [Range("orders", "ORDERS", 101, 130)]
    plan(generation, at(100), at(9, begin=4))
    assert failed_batch(declared, sink, generation) == [Range("orders", "ORDERS", 5, 9)]
    plan(generation, at(100), at(100))
    assert failed_batch(declared, sink, generation) == []


def test_several_streams_and_sources_have_a_range_each(write: Callable[..., Path]) -> None:
    second = '[sources.more]\noptions = { stream = "A,B" }\n[sinks.out]'
    text = TEXT.replace("[sinks.out]", second).replace(
        "SELECT * FROM orders", "SELECT data FROM orders UNION ALL SELECT data FROM more"
    )
    declared = read(write(text))
    generation = checkpoint_of(declared, "out").current()
    both = {"s": {"A": {"epoch": "e", "seq": 3}, "B": {"epoch": "e", "seq": 8}}, "source": "more"}
    lines = [json.dumps({**both, "v": 1}), json.dumps(at(5, source="orders"))]
    plan(generation, None)
    (Path(generation.path) / "offsets" / "0").write_text("v1\n{}\n" + "\n".join(lines))
    assert failed_batch(declared, declared.sinks["out"], generation) == [
        Range("more", "A", 1, 3),
        Range("more", "B", 1, 8),
        Range("orders", "ORDERS", 1, 5),
    ]


def test_what_is_left_out_is_kept_once_and_a_damaged_file_is_told(declared: Declared) -> None:
    generation = checkpoint_of(declared, "out").current()
    assert read_skipped(generation) == []
    one, two = (Skipped("orders", "ORDERS", number, "s", "v", "bad") for number in (1, 2))
    for each in (one, two, one):
        skip(generation, each)
    assert read_skipped(generation) == [one, two]
    file = file_of(generation)
    assert file is not None
    file.write_text('{"source": 1}\n')
    with pytest.raises(ConfigurationError, match="each line names a message"):
        read_skipped(generation)
