"""How many partitions move when a member comes or goes, beside the fewest possible."""

from __future__ import annotations

from pathlib import Path

import pytest

from group_world import moved, moves_needed
from headrace.groups.record.assignment import MemberMapping, assign

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "groups.md"


def moved_by(partitions: int, members: int, place: int) -> int:
    """With one more member, whose name is the ``place``-th then; as many move when it leaves."""
    names = [f"m{number:02}" for number in range(members + 1)]
    fewer = names[:place] + names[place + 1 :]
    there, back = assign(partitions, fewer), assign(partitions, names)
    assert len(moved(there, back)) == len(moved(back, there))
    return len(moved(there, back))


@pytest.mark.parametrize("members", range(1, 9))
@pytest.mark.parametrize("partitions", [12, 60])
def test_no_place_moves_fewer_than_must(partitions: int, members: int) -> None:
    fewest = moves_needed(partitions, members, members + 1)
    assert fewest <= min(moved_by(partitions, members, place) for place in range(members + 1))


def test_the_guide_says_how_many_partitions_move() -> None:
    said = "From 3 to 4 members {} of 6 partitions move, where {} would do."
    page = " ".join(GUIDE.read_text().split())
    assert said.format(moved_by(6, 3, 3), moves_needed(6, 3, 4)) in page


@pytest.mark.parametrize(("partitions", "members"), [(60, 4), (24, 8), (7, 3)])
def test_mappings_move_no_more_than_must(partitions: int, members: int) -> None:
    """What the guide recommends where movement hurts: keep what one has, give away what is too much."""
    before = assign(partitions, [f"m{n}" for n in range(members)])
    share = partitions // (members + 1)
    kept = {name: list(numbers) for name, numbers in before.items()}
    given: list[int] = []
    while len(given) < share:
        fullest = max(kept, key=lambda name: len(kept[name]))
        given.append(kept[fullest].pop())
    mappings = [MemberMapping(name, tuple(numbers)) for name, numbers in kept.items()]
    after = assign(partitions, (), [*mappings, MemberMapping("new", tuple(given))])
    assert len(moved(before, after)) == share == moves_needed(partitions, members, members + 1)
    sizes = [len(numbers) for numbers in after.values()]
    assert max(sizes) - min(sizes) <= 1
