"""No two streams have a subject in common, however many there are, and asking for that is quick."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.core.jetstream import context
from headrace.broker.core.jetstream.context import TakenSubjects
from headrace.pattern_tree import PATTERNS_MAX, PatternTree, TooManyPatternsError
from headrace.subjects import overlaps
from jetstream_world import Client, World
from machine import pieces

TOKENS = st.lists(st.sampled_from([b"a", b"b", b"*"]), min_size=1, max_size=3)
PATTERNS = st.builds(lambda tokens, rest: b".".join(tokens + rest), TOKENS,
                     st.sampled_from([[], [b">"]])) | st.just(b">")  # fmt: skip
SETS = st.lists(PATTERNS, max_size=4, unique=True)


@given(st.lists(SETS, max_size=4), SETS, st.integers(0, 4), st.integers(0, 4))
def test_it_says_what_comparing_each_with_each_says(
    streams: list[list[bytes]], asked: list[bytes], gone: int, by: int
) -> None:
    subjects = TakenSubjects()
    kept: dict[str, list[bytes]] = {}
    for number, patterns in enumerate(streams):
        if not subjects.is_taken(patterns, f"S{number}"):
            subjects.add(patterns, f"S{number}")
            kept[f"S{number}"] = patterns
    subjects.remove(kept.pop(f"S{gone}", []), f"S{gone}")
    expected = any(
        overlaps(pattern, other)
        for name, others in kept.items()
        if name != f"S{by}"
        for other in others
        for pattern in asked
    )
    assert subjects.is_taken(asked, f"S{by}") == expected
    assert len(subjects) == sum(map(len, kept.values()))


def test_a_subject_that_two_streams_had_stays_with_the_other() -> None:
    subjects = TakenSubjects()
    subjects.add([b"a.b"], "S")
    subjects.add([b"a.b"], "T")
    assert subjects.is_taken([b"a.*"], "S")
    subjects.remove([b"a.b"], "S")
    assert subjects.is_taken([b"a.b"], "S")
    assert not subjects.is_taken([b"a.*"], "T")


def test_asking_takes_no_longer_among_many_others() -> None:
    subjects = TakenSubjects()
    for number in range(20):
        subjects.add([b"s.%d.%d" % (number, n) for n in range(PATTERNS_MAX)], f"S{number}")
    began = time.process_time()
    for number in range(200):
        assert not subjects.is_taken([b"t.%d" % number], "T")
    assert pieces(time.process_time() - began) < 200  # each of them looked at each time: 4,000


def test_literals_are_not_looked_for_among_wildcards_that_begin_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    subjects = TakenSubjects()
    subjects.add([b"good.>"], "S")
    subjects.add([b"x.1", b"x.2"], "T")
    with monkeypatch.context() as alone:
        alone.delattr(PatternTree, "all_overlapping")
        assert not subjects.is_taken([b"x.1", b"x.3"], "T")
        assert subjects.is_taken([b"x.1", b"x.3"], "U")
        assert not subjects.is_taken([b"y.1", b"y.3"], "U")
    assert subjects.is_taken([b"y.1", b"good.3"], "U")
    subjects.add([b"*.7"], "V")
    assert subjects.is_taken([b"x.7"], "T")
    assert not subjects.is_taken([b"x.1"], "T")


def test_where_the_tree_is_no_help_few_are_compared_and_many_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    subjects = TakenSubjects()
    subjects.add([b"s%d.a" % number for number in range(3_000)], "S")
    asked = [b"*.b%d" % number for number in range(100)]
    assert not subjects.is_taken(asked, "T")
    assert subjects.is_taken([*asked, b"*.a"], "T")
    monkeypatch.setattr(context, "COMPARED_MAX", 2_999)
    with pytest.raises(TooManyPatternsError):
        subjects.is_taken(asked, "T")


def change(client: Client, verb: str, name: str, *subjects: str) -> str:
    """The error of an answer, or nothing."""
    answer = client.api(f"STREAM.{verb}.{name}", {"name": name, "subjects": subjects})
    return str(answer.get("error", {}).get("description", ""))


def test_subjects_are_free_again_when_their_stream_changes_or_goes() -> None:
    client = World().client()
    assert not change(client, "CREATE", "S", "a.*", "b")
    assert "overlap" in change(client, "CREATE", "T", "a.b")
    assert not change(client, "UPDATE", "S", "a.b", "b.>")  # within what it had, and beside
    assert not change(client, "CREATE", "T", "a.c")
    assert "overlap" in change(client, "UPDATE", "S", "a.*", "b.>")
    assert "overlap" in change(client, "CREATE", "U", "*.c")
    assert not change(client, "UPDATE", "T", "c")
    assert not change(client, "UPDATE", "S", "a.*", "b.>")
    client.api("STREAM.DELETE.S")
    assert not change(client, "CREATE", "U", "a.>", "b")


def test_changing_all_of_the_most_subjects_takes_no_long() -> None:
    """Four times as many take four times as long, not sixteen times, as each compared with each does."""
    client = World().client()

    def seconds(stream: str, count: int) -> float:
        """The least of a few changes: other work on the machine makes it longer."""
        assert not change(client, "CREATE", stream, *(f"{stream}a.{n}" for n in range(count)))
        took = []
        for head in "bcde":
            began = time.process_time()
            assert not change(
                client, "UPDATE", stream, *(f"{stream}{head}.{n}" for n in range(count))
            )
            took.append(time.process_time() - began)
        return min(took)

    assert seconds("S", PATTERNS_MAX) < 9 * seconds("T", PATTERNS_MAX // 4)
