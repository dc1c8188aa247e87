"""The tree agrees with comparing each with each, and gives up before it takes too long."""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.pattern_tree import SHAPES_MAX, PatternTree, TooManyPatternsError, are_apart
from headrace.subjects import is_subset, overlaps
from machine import pieces

TOKENS = st.lists(st.sampled_from([b"a", b"b", b"*"]), min_size=1, max_size=4)
PATTERNS = st.builds(lambda tokens, rest: b".".join(tokens + rest), TOKENS,
                     st.sampled_from([[], [b">"]])) | st.just(b">")  # fmt: skip


@given(st.lists(PATTERNS, max_size=8), PATTERNS)
def test_it_finds_an_overlap_where_there_is_one(patterns: list[bytes], asked: bytes) -> None:
    found = PatternTree(patterns).overlapping(asked)
    if found is None:
        assert not any(overlaps(pattern, asked) for pattern in patterns)
    else:
        assert found in patterns
        assert overlaps(found, asked)


@given(st.lists(PATTERNS, max_size=8), PATTERNS)
def test_it_finds_a_pattern_that_contains_another(patterns: list[bytes], asked: bytes) -> None:
    found = PatternTree(patterns).containing(asked)
    if found is None:
        assert not any(is_subset(asked, other) for other in patterns if other != asked)
    else:
        assert found in patterns
        assert found != asked
        assert is_subset(asked, found)


@example([b"b.b", b">"], [], [b"b.b"])  # a literal of the set, and a wildcard that contains it
@given(
    st.lists(PATTERNS, max_size=8), st.lists(PATTERNS, max_size=4), st.lists(PATTERNS, max_size=3)
)
def test_it_finds_all_overlaps_of_what_is_still_in_it(
    patterns: list[bytes], gone: list[bytes], asked: list[bytes]
) -> None:
    tree = PatternTree(patterns)
    for question in asked:  # each with a wildcard moves literals into the tree
        list(tree.all_overlapping(question))
    for pattern in gone:
        tree.discard(pattern)
    left = set(patterns).difference(gone)
    for question in asked:
        expected = {pattern for pattern in left if overlaps(pattern, question)}
        found = list(tree.all_overlapping(question))
        assert set(found) == expected
        assert len(found) == len(expected)
        assert (tree.overlapping(question) is None) == (not expected)


@given(st.lists(PATTERNS, max_size=5), st.lists(PATTERNS, max_size=5))
def test_it_finds_whether_one_of_several_overlaps(ours: list[bytes], theirs: list[bytes]) -> None:
    tree = PatternTree(ours)
    expected = any(overlaps(one, other) for one in ours for other in theirs)
    assert tree.overlaps_any(theirs) == expected
    assert tree.overlaps_any(theirs) == expected  # literals may stand in the tree by now


def test_partitions_are_told_apart_by_their_first_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = PatternTree(b"%d.>" % number for number in range(16))
    asked: list[bytes] = []
    overlapping = PatternTree.overlapping

    def noted(self: PatternTree, pattern: bytes) -> bytes | None:
        asked.append(pattern)
        return overlapping(self, pattern)

    monkeypatch.setattr(PatternTree, "overlapping", noted)
    assert not tree.overlaps_any([b"%d.orders.*" % number for number in range(16, 32)])
    assert not asked
    assert tree.overlaps_any([b"16.>", b"15.orders.*"])
    assert asked == [b"16.>", b"15.orders.*"]


@given(st.lists(PATTERNS, max_size=8))
@example([b"a*.b", b"*.c"])
@example([b"a.>", b"a.b.c", b"b.>"])
def test_those_that_are_said_to_be_apart_have_no_subject_in_common(patterns: list[bytes]) -> None:
    pairs = [(a, b) for place, a in enumerate(patterns) for b in patterns[:place]]
    truth = not any(overlaps(a, b) for a, b in pairs)
    if are_apart(patterns):
        assert truth
    elif truth:  # the tree has to say it
        shapes = {
            tuple(token if token in (b"*", b">") else b"" for token in pattern.split(b"."))
            for pattern in patterns
        }
        assert len(shapes) > 1


@pytest.mark.parametrize(
    "patterns",
    [
        [b"x%d.*.a.b.c" % number for number in range(100)],
        [b"x%d.>" % number for number in range(100)],
        [b"x%d.%b" % (number, b"*" if number % 2 else b"a") for number in range(100)],
        [b"x%d" % number + b".*" * (number % 50) for number in range(100)],
        [b"x.%d" % number + b".*" * (number % SHAPES_MAX) for number in range(100)],
    ],
)
def test_patterns_of_few_shapes_need_no_tree(patterns: list[bytes]) -> None:
    assert are_apart(patterns)
    assert not are_apart([*patterns, patterns[0]])


@given(st.lists(PATTERNS, max_size=6), st.lists(PATTERNS, max_size=3))
def test_first_tokens_tell_only_the_truth(patterns: list[bytes], asked: list[bytes]) -> None:
    if PatternTree(patterns).is_apart_from(asked):
        assert not any(overlaps(pattern, other) for pattern in patterns for other in asked)


def test_steps_are_counted_for_each_question_of_its_own() -> None:
    tree = PatternTree(b"%d.a" % number for number in range(20_000))
    assert tree.overlapping(b"*.b") is None
    with pytest.raises(TooManyPatternsError, match="too many subjects"):
        tree.overlapping(b"*.b")
    tree.ask_anew()
    assert tree.overlapping(b"*.a") == b"0.a"


def test_many_patterns_are_quick() -> None:
    patterns = [b"orders.%d.*" % number for number in range(50_000)]
    start = time.process_time()
    tree = PatternTree(patterns)
    assert all(tree.containing(pattern) is None for pattern in patterns)
    assert pieces(time.process_time() - start) < 2_000


def test_patterns_made_to_be_slow_are_given_up_on() -> None:
    tree = PatternTree(b"%d.a" % number for number in range(2_000))
    with pytest.raises(TooManyPatternsError, match="too many subjects"):
        for number in range(2_000):
            tree.overlapping(b"*.b%d" % number)
