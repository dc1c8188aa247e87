"""Which subjects a view finds, however it finds them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from headrace.broker.store.index import views
from headrace.broker.store.index.index import SubjectTable
from headrace.broker.store.index.views import Matching
from headrace.subjects import SubjectFilter

TOKENS = [b"0", b"1", b"2", b"10", b"orders", b"*x"]
PATTERN_TOKENS = [*TOKENS, b"*"]


def subject(chance: random.Random) -> bytes:
    return b".".join(chance.choices(TOKENS, k=chance.randint(1, 3)))


def pattern(chance: random.Random) -> bytes:
    tokens = chance.choices(PATTERN_TOKENS, k=chance.randint(1, 3))
    return b".".join([*tokens, b">"] if chance.random() < 0.6 else tokens)


def test_the_subjects_found_are_those_that_match() -> None:
    chance = random.Random(7)
    for _ in range(300):
        table = SubjectTable()
        patterns = [pattern(chance) for _ in range(chance.randint(1, 4))]
        filter = SubjectFilter(patterns)
        view = Matching(table, filter)
        for _ in range(3):  # subjects come, and are asked for, by and by
            for _ in range(chance.randint(0, 15)):
                table.intern(subject(chance))
            expected = [sid for sid, name in enumerate(table.names) if filter.matches(name)]
            assert list(view.sids()) == expected, patterns


@pytest.mark.parametrize("pattern", [b"KV.b.>", b"KV.b.*", b"KV.*", b"KV.>", b"KV.b.k.*"], ids=str)
@pytest.mark.parametrize(
    "odd",
    [b"", b"KV.b", b"KV.b.", b"KV.b.x.y", b"KV.bc.x", b"KVb.b.x", b"x.KV.b.x", b"KV"],
    ids=str,
)
@pytest.mark.parametrize("at", [0, 3, 9], ids=str)
def test_a_block_of_subjects_is_matched_as_each_of_them(
    pattern: bytes, odd: bytes, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "_BLOCK", 4)
    table, filter = SubjectTable(), SubjectFilter([pattern])
    view = Matching(table, filter)
    names = [b"KV.b.k%d" % number for number in range(10)]
    for name in [*names[:at], *([odd] if odd else []), *names[at:]]:
        table.intern(name)
    assert list(view.sids()) == [s for s, name in enumerate(table.names) if filter.matches(name)]


@pytest.mark.parametrize("pattern", [b"KV.b.>", b"KV.b.*"], ids=str)
def test_no_subject_of_a_bucket_is_compared_by_itself(pattern: bytes) -> None:
    table, filter = SubjectTable(), SubjectFilter([pattern])
    compared: list[bytes] = []
    object.__setattr__(filter, "matches", compared.append)
    view = Matching(table, filter)
    for number in range(3 * 20_000):
        table.intern(b"KV.b.k%d" % number)
        if number % 20_000 == 19_999:
            assert list(view.sids()) == [*range(number + 1)]
    assert compared == []


@pytest.mark.parametrize(
    ("patterns", "asked"),
    [([b"3.>"], 0), ([b"3.>", b"4.>"], 0), ([b"3.orders.*", b"4.>"], 126), ([b"*.orders.>"], 1000)],
    ids=str,
)
def test_only_subjects_that_begin_alike_are_compared(patterns: list[bytes], asked: int) -> None:
    table = SubjectTable()
    for number in range(1000):
        table.intern(b"%d.orders.k%d" % (number % 16, number))
    filter = SubjectFilter(patterns)
    compared: list[bytes] = []
    matches: Callable[[bytes], Any] = filter.matches

    def noted(subject: bytes) -> bool:
        compared.append(subject)
        return bool(matches(subject))

    object.__setattr__(filter, "matches", noted)
    found = Matching(table, filter).sids()
    assert len(compared) == asked
    assert [table.names[sid] for sid in found] == [one for one in table.names if matches(one)]
