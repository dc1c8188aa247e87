"""Whether the disk is so quick that its owner may wait for it."""

from __future__ import annotations

from headrace.broker.store.commit.commit import IN_A_ROW, QUICK_NS, REST, Quickness


def told(quickness: Quickness, times: int, duration_ns: int, at_ns: int = 0, **how: bool) -> None:
    for _ in range(times):
        quickness.took(at_ns, at_ns + duration_ns, waited=how.get("waited", False))


def test_the_owner_waits_for_the_disk_after_some_quick_commits_in_a_row() -> None:
    quickness = Quickness()
    told(quickness, IN_A_ROW - 1, QUICK_NS)
    assert not quickness.allows(0)
    told(quickness, 1, QUICK_NS)
    assert quickness.allows(0)


def test_one_slow_commit_begins_the_count_anew_whoever_made_it() -> None:
    quickness = Quickness()
    told(quickness, IN_A_ROW, 1)
    told(quickness, 1, QUICK_NS + 1)
    told(quickness, IN_A_ROW - 1, 1)
    assert not quickness.allows(1 << 60)
    told(quickness, 1, 1)
    assert quickness.allows(0)


def test_a_slow_one_that_was_waited_for_rests_for_a_multiple_of_its_time() -> None:
    quickness = Quickness()
    told(quickness, IN_A_ROW, 1)
    quickness.took(100, 100 + 5 * QUICK_NS, waited=True)
    told(quickness, IN_A_ROW, 1, at_ns=200)
    ends_ns = 100 + 5 * QUICK_NS + REST * 5 * QUICK_NS
    assert not quickness.allows(ends_ns - 1)
    assert quickness.allows(ends_ns)
