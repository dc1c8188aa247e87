"""Subject transforms: every function, what is refused, and nats-server's own answers."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

import peers
from headrace.errors import InvalidSubjectError
from headrace.subjects import is_valid_subject
from headrace.transforms import SubjectTransform, partition
from headrace.wire import MSG, PONG, Frame, Parser, encode

EXAMPLES = [
    (b">", b">", b"a.b", b"a.b"),
    (b"", b">", b"a.b", b"a.b"),
    (b">", b"x.>", b"a.b", b"x.a.b"),
    (b"foo.>", b"bar.>", b"foo.a.b", b"bar.a.b"),
    (b"foo", b"bar.baz", b"foo", b"bar.baz"),
    (b"foo.*", b"bar", b"foo.a", b"bar"),
    (b"foo.*.*", b"bar.$2.$1", b"foo.a.b", b"bar.b.a"),
    (b"*.x.*", b"{{wildcard(2)}}.{{ Wildcard ( 1 ) }}", b"a.x.b", b"b.a"),
    (b"*.$JS", b"$JS.$1", b"a.$JS", b"$JS.a"),
    (b"foo.*", b"{{wildcard(0)}}.$1", b"foo.a", b"foo.a"),
    (b"foo.*.>", b"$1.bar.>", b"foo.a.b.c", b"a.bar.b.c"),
    # partition
    (b">", b"{{Partition(4)}}.>", b"foo.bar", b"0.foo.bar"),
    (
        b"flights.*.*",
        b"{{partition(8,2)}}.flights.{{wildcard(1)}}.{{wildcard(2)}}",
        b"flights.JFK.N725MQ",
        b"%d.flights.JFK.N725MQ" % partition(b"N725MQ", 8),
    ),
    (b"*", b"p.{{partition(10,1)}}", b"foo", b"p.3"),
    (b"*.*", b"{{partition(10, 1, 2)}}.a", b"fo.o", b"3.a"),
    (b"*.*", b"{{partition(10,2,1)}}.a", b"o.fo", b"3.a"),
    (b"*.*", b"{{partition(10)}}.a", b"foo.bar", b"6.a"),
    (b"foo.bar", b"x.{{partition(10)}}", b"foo.bar", b"x.6"),
    (b"*", b"{{partition(0,1)}}", b"foo", b"0"),
    # cutting
    (b"*", b"{{splitfromleft(1,3)}}", b"12345", b"123.45"),
    (b"*", b"{{SplitFromRight(1,3)}}", b"12345", b"12.345"),
    (b"*", b"{{SplitFromLeft(1,5)}}", b"12345", b"12345"),
    (b"*", b"{{SplitFromRight(1,0)}}", b"12345", b"12345"),
    (b"*", b"{{SliceFromLeft(1,3)}}", b"1234567890", b"123.456.789.0"),
    (b"*", b"{{SliceFromRight(1,3)}}", b"1234567890", b"1.234.567.890"),
    (b"*", b"{{SliceFromLeft(1,5)}}", b"1234567890", b"12345.67890"),
    (b"*", b"{{SliceFromRight(1,5)}}", b"1234567890", b"12345.67890"),
    (b"*", b"{{SliceFromLeft(1,10)}}", b"1234567890", b"1234567890"),
    (b"*", b"{{left(1,3)}}", b"12345", b"123"),
    (b"*", b"{{right(1,3)}}", b"12345", b"345"),
    (b"*", b"{{left(1,0)}}.{{right(1,0)}}", b"12345", b"12345.12345"),
    (b"*", b"{{left(1,9)}}.{{right(1,9)}}", b"12345", b"12345.12345"),
    (b"*", b"{{split(1,-)}}.fix", b"a-b-c", b"a.b.c.fix"),
    (b"*", b"{{split(1, --)}}", b"a--b-c", b"a.b-c"),
    (b"*", b"{{split(1,-)}}", b"-a--b-", b"a.b"),
    (b"*", b"{{split(1,-)}}", b"abc", b"abc"),
]


@pytest.mark.parametrize(("src", "dest", "subject", "expected"), EXAMPLES)
def test_examples(src: bytes, dest: bytes, subject: bytes, expected: bytes) -> None:
    transform = SubjectTransform(src, dest)
    assert transform.apply(subject) == expected
    assert transform.apply(subject) == expected
    assert repr(dest) in repr(transform)


def test_function_names_may_be_in_any_case() -> None:
    assert SubjectTransform(b"*", b"{{LEFT(1,2)}}").apply(b"abc") == b"ab"


def test_other_subjects_are_left_alone() -> None:
    assert SubjectTransform(b"foo.*", b"bar.$1").apply(b"foo.a.b") is None


def test_a_subject_cut_down_to_nothing_is_left_alone() -> None:
    assert SubjectTransform(b"*", b"x.{{split(1,-)}}").apply(b"--") is None


@given(st.from_regex(rb"[a-z-]{1,12}(\.[a-z-]{1,12}){0,3}", fullmatch=True), st.integers(0, 6))
def test_cutting_keeps_every_byte_and_gives_valid_subjects(subject: bytes, n: int) -> None:
    first, *others = subject.split(b".")
    src = b".".join([b"*", *others])
    for name in (b"splitFromLeft", b"splitFromRight", b"sliceFromLeft", b"sliceFromRight"):
        result = SubjectTransform(src, b"{{%b(1,%d)}}" % (name, n)).apply(subject)
        assert result is not None
        assert is_valid_subject(result)
        assert result.replace(b".", b"") == first


def test_random_uses_the_source_it_was_handed_every_time() -> None:
    numbers = iter(range(10))
    asked = []

    def random(n: int) -> int:
        asked.append(n)
        return next(numbers)

    transform = SubjectTransform(b"a", b"a.{{random(7)}}", random=random)
    assert [transform.apply(b"a") for _ in range(3)] == [b"a.0", b"a.1", b"a.2"]
    assert asked == [7, 7, 7]
    assert SubjectTransform(b"a", b"a.{{random(0)}}", random=random).apply(b"a") == b"a.0"


@pytest.mark.parametrize(
    ("src", "dest", "said"),
    [
        (b"a..b", b"c", "empty token"),
        (b"a", b"", "not a valid token"),
        (b"a", b"b..c", "not a valid token"),
        (b"a", b"b c", "not a valid token"),
        (b"a.*", b"b.*", "not a valid token"),
        (b"a.>", b"b", "both end in `>`"),
        (b"a", b"b.>", "both end in `>`"),
        (b"a.*", b"b.>.c", "'>' is not a valid token"),
        (b"a.*", b"$2", "wildcard 2 of 1"),
        (b"a", b"$1", "wildcard 1 of 0"),
        (b"a", b"{{wildcard(0)}}", "wildcard 0 of 0"),
        (b"a.>", b"{{partition(3,1)}}.>", "wildcard 1 of 0"),
        (b"*", b"{{wildcard()}}", "not a number"),
        (b"*", b"{{wildcard(1,2)}}", r"takes 1 argument\(s\), 2 given"),
        (b"*", b"{{wildcard(x)}}", "'x' is not a number"),
        (b"*", b"{{partition()}}", "not a number"),
        (b"*", b"{{partition(-1)}}", "'-1' is not a number"),
        (b"*", b"{{partition(2147483648)}}", "not a number"),
        (b"*", b"{{split(1)}}", r"takes 2 argument\(s\), 1 given"),
        (b"*", b"{{split(1,a b)}}", "separator without spaces"),
        (b"*", b"{{split(1,)}}", "separator without spaces"),
        (b"*", b"{{left(1)}}", "takes 2"),
        (
            b"*",
            b"{{shuffle(1)}}",
            "'{{shuffle.1.}}' is not a known function: accepted are wildcard",
        ),
        (b"*", b"{{wildcard 1}}", "not a known function"),
        (b"*", b"{{random(3)}}", "source of randomness"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_and_where(
    src: bytes, dest: bytes, said: str
) -> None:
    with pytest.raises(InvalidSubjectError, match=said):
        SubjectTransform(src, dest)


@pytest.mark.peer
def test_nats_server_maps_the_same(nats_server: Callable[..., peers.ServerProcess]) -> None:
    # Each example gets a first token of its own, which keeps its mapping apart from the others.
    cases = [
        (b"e%d.%b" % (number, src or b">"), dest, b"e%d.%b" % (number, subject))
        for number, (src, dest, subject, _) in enumerate(EXAMPLES)
    ]
    mappings = [f'"{src.decode()}": "{dest.decode()}"' for src, dest, _ in cases]
    server = nats_server(config="\n".join(["mappings {", *mappings, "}"]), jetstream=False)
    ours = {subject: SubjectTransform(src, dest).apply(subject) for src, dest, subject in cases}
    # Once in hundreds of runs nats-server put a subject into another partition, and then no more.
    theirs = [_mapped_by(server, [subject for _, _, subject in cases]) for _ in range(3)]
    assert ours in theirs, theirs[-1]


def _mapped_by(server: peers.ServerProcess, subjects: list[bytes]) -> dict[bytes, bytes]:
    """The subject under which a message to each of these arrives."""
    frames: list[Frame] = []
    parser = Parser.for_client()
    with socket.create_connection((server.host, server.port), timeout=10) as connection:
        sent = b"".join(encode.pub(subject, b"", b"", subject) for subject in subjects)
        connection.sendall(b'CONNECT {"verbose":false}\r\nSUB > 1\r\n' + sent + b"PING\r\n")
        while (PONG,) not in frames:
            frames += parser.feed(connection.recv(65536))
    return {frame[5]: frame[1] for frame in frames if frame[0] == MSG}
