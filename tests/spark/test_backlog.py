"""Messages that have come, until they are cut into chunks."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from headrace.spark.frames import Backlog, Frames
from headrace.wire import MSG, Frame


def frames(sizes: list[int]) -> list[Frame]:
    return [
        (MSG, b"s", b"1", b"$JS.ACK.S.c.1.%d.%d.1.0" % (n, n), b"", b"x" * size)
        for n, size in enumerate(sizes, 1)
    ]


def cuts(parts: list[list[Frame]], rows_max: int, bytes_max: int) -> list[list[Frame]]:
    backlog = Backlog()
    for part in parts:
        backlog.add(Frames(part))
    found: list[list[Frame]] = []
    while backlog:
        first = backlog.first(rows_max, bytes_max)
        assert first == backlog.first(rows_max, bytes_max)
        found.append([frame for part in first for frame in part.frames()])
        backlog.drop(first)
        assert len(backlog) == sum(map(len, parts)) - sum(map(len, found))
        assert backlog.payload_bytes == sum(
            len(frame[5]) for part in parts for frame in part
        ) - sum(len(frame[5]) for cut in found for frame in cut)
    return found


@given(
    st.lists(st.integers(0, 20), min_size=1, max_size=30),
    st.lists(st.integers(0, 30)),
    st.integers(1, 12),
    st.integers(1, 60),
)
def test_the_same_messages_are_cut_at_the_same_places_however_they_came(
    sizes: list[int], places: list[int], rows_max: int, bytes_max: int
) -> None:
    each = frames(sizes)
    edges = [0, *sorted({place for place in places if 0 < place < len(each)}), len(each)]
    parts = [each[a:b] for a, b in pairwise(edges)]
    found = cuts(parts, rows_max, bytes_max)
    assert found == cuts([each], rows_max, bytes_max)
    assert [frame for cut in found for frame in cut] == each
    for cut in found:
        assert 1 <= len(cut) <= rows_max
        assert len(cut) == 1 or sum(len(frame[5]) for frame in cut) <= bytes_max
