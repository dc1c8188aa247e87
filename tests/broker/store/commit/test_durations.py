"""How long something took, many times, by length."""

from __future__ import annotations

from headrace.broker.store.commit.writer import BOUNDS_NS, Durations


def test_each_duration_counts_for_its_bound_and_all_longer_ones() -> None:
    durations = Durations()
    for duration_ns in (1, BOUNDS_NS[0], BOUNDS_NS[0] + 1, BOUNDS_NS[-1] + 1):
        durations.add(duration_ns)
    described = durations.describe()
    assert described["count"] == 4
    at_most = described["at_most"]
    assert isinstance(at_most, dict)
    assert list(at_most.values())[:3] == [2, 3, 3]
    assert at_most["5"] == 3
    assert durations.total_ns == 2 * BOUNDS_NS[0] + BOUNDS_NS[-1] + 3
    assert described["seconds"] == durations.total_ns / 1e9
