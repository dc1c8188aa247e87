"""Subjects: validity, matching against brute force, filters, the partition hash."""

from __future__ import annotations

import itertools
import pickle
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import HeadraceError, InvalidSubjectError
from headrace.subjects import (
    SubjectFilter,
    are_below,
    are_valid_patterns,
    check_pattern,
    check_subject,
    is_literal,
    is_subset,
    is_valid_pattern,
    is_valid_subject,
    matches,
    overlaps,
)
from headrace.transforms import fnv1a_32, partition

# Every subject of up to four tokens over three words: three, so that one is always in no pattern made
# of the first two, which is what makes brute force exact.
SUBJECTS = [
    b".".join(tokens)
    for count in range(1, 5)
    for tokens in itertools.product((b"a", b"bb", b"z"), repeat=count)
]
PATTERNS = [
    b".".join((*tokens, *rest))
    for count in range(3)
    for tokens in itertools.product((b"a", b"bb", b"*"), repeat=count)
    for rest in ((b"a",), (b"*",), (b">",))
]
patterns = st.sampled_from(PATTERNS)


def naively_matches(pattern: bytes, subject: bytes) -> bool:
    """The definition, token by token."""
    wanted, given_ = pattern.split(b"."), subject.split(b".")
    while wanted and given_:
        token, word = wanted.pop(0), given_.pop(0)
        if token == b">":
            return True
        if token not in (b"*", word):
            return False
    return not wanted and not given_


# --- validity -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "subject",
    [b"a", b"a.b.c", b"$JS.API.INFO", b"a*b.c", b">a.b", b"a>.**", b"a.>>", "ü.ß".encode(), b"{}"],
)
def test_valid_subjects_are_valid_patterns_too(subject: bytes) -> None:
    assert is_valid_subject(subject)
    assert is_valid_pattern(subject)
    assert is_literal(subject)
    assert check_subject(subject) == check_pattern(subject) == subject


@pytest.mark.parametrize("pattern", [b"*", b">", b"a.*", b"*.a", b"a.>", b"*.>", b"a.*.*.>"])
def test_patterns_with_wildcards_are_no_subjects(pattern: bytes) -> None:
    assert is_valid_pattern(pattern)
    assert not is_literal(pattern)
    assert not is_valid_subject(pattern)
    with pytest.raises(InvalidSubjectError, match="wildcard"):
        check_subject(pattern)


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        (b"", "empty"),
        (b".", "empty token at position 1"),
        (b"a.", "empty token at position 2"),
        (b"a..b", "empty token at position 2"),
        (b".a", "empty token at position 1"),
        (b"a b", "' ' at byte 1"),
        (b"a\tb", r"'\\t' at byte 1"),
        (b"a\r\nb", r"'\\r' at byte 1"),
        (b"a.b\n", r"'\\n' at byte 3"),
        (b"a\0", r"'\\x00' at byte 1"),
        (b"\x7f", r"'\\x7f' at byte 0"),
        (b"a.>.b", "'>' at position 2"),
        (b">.>", "'>' at position 1"),
        (b"\xff.a", "UTF-8"),
    ],
)
def test_a_malformed_pattern_is_refused_with_what_and_where(pattern: bytes, said: str) -> None:
    assert not is_valid_pattern(pattern)
    assert not is_valid_subject(pattern)
    for check in (check_pattern, check_subject):
        with pytest.raises(InvalidSubjectError, match="accepted are") as caught:
            check(pattern)
        assert isinstance(caught.value, HeadraceError)
        assert isinstance(caught.value, ValueError)
    with pytest.raises(InvalidSubjectError, match=said):
        check_pattern(pattern)


@given(st.binary(max_size=6) | st.text("a.*> \n", max_size=6).map(str.encode))
def test_what_is_not_valid_always_has_a_complaint(value: bytes) -> None:
    for is_valid, check in ((is_valid_subject, check_subject), (is_valid_pattern, check_pattern)):
        if is_valid(value):
            assert check(value) == value
        else:
            with pytest.raises(InvalidSubjectError):
                check(value)


# --- matching -------------------------------------------------------------------------------------


def test_matching_follows_the_definition() -> None:
    for pattern in PATTERNS:
        for subject in SUBJECTS:
            assert matches(pattern, subject) == naively_matches(pattern, subject), (
                pattern,
                subject,
            )


@given(
    st.lists(
        patterns | st.binary(max_size=3) | st.text("a.*> é\n", max_size=6).map(str.encode),
        min_size=1,
        max_size=4,
    )
)
def test_patterns_are_valid_together_if_each_of_them_is(some: list[bytes]) -> None:
    assert are_valid_patterns(some) == all(map(is_valid_pattern, some))


@given(
    st.sampled_from([b"a", b"a.b"]),
    st.lists(
        st.sampled_from(
            [b"a", b"a.b", b"a.c", b"a.b.c", b"a.b.", b"a.", b"a.b.c.a.b.c", b"b.a.b.c"]
        )
        | st.text("ab.", min_size=1, max_size=6).map(str.encode),
        min_size=1,
        max_size=4,
    ),
)
def test_subjects_are_below_a_head_if_each_of_them_is(head: bytes, some: list[bytes]) -> None:
    def is_below(subject: bytes) -> bool:
        above, _dot, last = subject.rpartition(b".")
        return above == head and last != b""

    assert are_below(head, some) == all(map(is_below, some))
    assert are_below(head, some, deep=True) == all(s.startswith(head + b".") for s in some)


@given(patterns, patterns)
def test_overlap_and_subset_agree_with_brute_force(a: bytes, b: bytes) -> None:
    of_a = {subject for subject in SUBJECTS if naively_matches(a, subject)}
    of_b = {subject for subject in SUBJECTS if naively_matches(b, subject)}
    assert overlaps(a, b) == overlaps(b, a) == bool(of_a & of_b)
    assert is_subset(a, b) == (of_a <= of_b)


# --- filters --------------------------------------------------------------------------------------


@given(st.lists(patterns, min_size=1, max_size=6) | st.lists(patterns, min_size=9, max_size=40))
def test_a_filter_matches_what_any_of_its_patterns_matches(chosen: list[bytes]) -> None:
    matches_any = SubjectFilter(chosen).matches
    for subject in SUBJECTS:
        expected = any(naively_matches(pattern, subject) for pattern in chosen)
        assert matches_any(subject) == expected, subject


def test_a_filter_takes_special_characters_literally() -> None:
    assert SubjectFilter([b"a+.*.(b)"]).matches(b"a+.x.(b)")
    assert not SubjectFilter([b"a+.*.b"]).matches(b"aa.x.b")
    assert SubjectFilter([b"*.b|c"]).matches(b"a.b|c")
    assert not SubjectFilter([b"*.b|c"]).matches(b"c")


def test_a_filter_is_a_value() -> None:
    one = SubjectFilter([b"a.>", b"b", b"a.>"])
    assert one.patterns == (b"a.>", b"b")
    assert one == SubjectFilter([b"b", b"a.>"])
    assert hash(one) == hash(SubjectFilter([b"b", b"a.>"]))
    assert one != SubjectFilter([b"b"])
    assert one != (b"a.>", b"b")
    assert pickle.loads(pickle.dumps(one)) == one
    assert "b'a.>'" in repr(one)
    with pytest.raises(AttributeError, match="immutable"):
        one.patterns = ()
    with pytest.raises(AttributeError, match="immutable"):
        del one.patterns


def test_a_filter_knows_when_it_is_one_subject() -> None:
    assert SubjectFilter([b"a.b"]).literal == b"a.b"
    assert SubjectFilter([b"a.b", b"a.b"]).literal == b"a.b"
    assert SubjectFilter([b"a.b", b"a.c"]).literal is None
    assert SubjectFilter([b"a.*"]).literal is None


def test_a_filter_of_nothing_or_of_nonsense_is_refused() -> None:
    with pytest.raises(InvalidSubjectError, match="at least one"):
        SubjectFilter([])
    with pytest.raises(InvalidSubjectError, match="position 1"):
        SubjectFilter([b"a", b">.a"])


def test_a_filter_of_many_patterns_finds_the_right_one() -> None:
    by_first = SubjectFilter([b"%d.>" % number for number in range(2_000)])
    assert by_first.matches(b"1999.a.b")
    assert not by_first.matches(b"2000.a.b")
    assert not by_first.matches(b"1999")
    by_third = SubjectFilter([b"a.*.%d.>" % number for number in range(2_000)])
    assert by_third.matches(b"a.b.1999.c.d")
    assert not by_third.matches(b"a.b.2000.c")
    assert not by_third.matches(b"a.b.1999")


# --- the partition hash ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"", 2166136261),
        (b"foo", 2851307223),
        (b"bar", 1991736602),
        (b"orders.1234", 2027452994),
        (b"customer-42", 4268273086),
    ],
)
def test_the_hash_is_fnv_1a(data: bytes, value: int) -> None:
    assert fnv1a_32(data) == value


@pytest.mark.parametrize(
    ("tokens", "n", "expected"),
    [
        (b"foo", 10, 3),
        (b"baz", 10, 0),
        (b"qux", 10, 9),
        (b"foo.bar", 10, 6),
        (b"foo.baz", 10, 4),
        (b"test.subject", 5, 0),
        (b"anything", 1, 0),
        (b"anything", 0, 0),
    ],
)
def test_partitions_are_those_of_nats_server(tokens: bytes, n: int, expected: int) -> None:
    assert partition(tokens, n) == expected


@pytest.mark.parametrize(
    ("n", "expected"),
    [
        (2, [1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 0, 1]),
        (4, [3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 0, 3]),
        (10, [3, 4, 1, 2, 7, 8, 5, 6, 5, 6, 2, 1]),
    ],
)
def test_numbers_land_in_the_partitions_of_nats_server(n: int, expected: list[int]) -> None:
    assert [partition(b"%d" % number, n) for number in range(12)] == expected


def test_a_filter_of_thousands_compiles_only_what_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A request may name so many, and the event loop waits for it."""
    compiled: list[bytes] = []
    compile_one = re.compile

    def noted(pattern: bytes, flags: int) -> re.Pattern[bytes]:
        compiled.append(pattern)
        return compile_one(pattern, flags)

    monkeypatch.setattr("headrace.subjects.re.compile", noted)
    many = SubjectFilter([b"x%d.*.b" % number for number in range(5000)])
    alone = SubjectFilter([b"orders.*.new"])
    assert not compiled
    assert not many.matches(b"y.1.b")
    assert not compiled
    for _ in range(3):
        assert many.matches(b"x7.1.b")
        assert not many.matches(b"x7.1.c")
        assert alone.matches(b"orders.1.new")
        assert not alone.matches(b"orders.1")
    assert len(compiled) == 2
