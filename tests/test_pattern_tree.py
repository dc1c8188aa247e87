"""The tree agrees with comparing each with each, and gives up before it takes too long."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.pattern_tree import PatternTree, TooManyPatternsError
from headrace.subjects import is_subset, overlaps

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


def test_many_patterns_are_quick() -> None:
    patterns = [b"orders.%d.*" % number for number in range(50_000)]
    start = time.process_time()
    tree = PatternTree(patterns)
    assert all(tree.containing(pattern) is None for pattern in patterns)
    assert time.process_time() - start < 5


def test_patterns_made_to_be_slow_are_given_up_on() -> None:
    tree = PatternTree(b"%d.a" % number for number in range(2_000))
    with pytest.raises(TooManyPatternsError, match="too many subjects"):
        for number in range(2_000):
            tree.overlapping(b"*.b%d" % number)
