"""How many partitions move when a member comes or goes, beside the fewest possible: the guide's table."""

from __future__ import annotations

from pathlib import Path

import pytest

from group_world import moved, moves_needed
from headrace.groups.record.assignment import MemberMapping, assign

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "groups.md"
PARTITIONS = (6, 12, 60)
MEMBERS = (1, 2, 3, 4, 8)


def moved_by(partitions: int, members: int, place: int) -> int:
    """With one more member, whose name is the ``place``-th then; as many move when it leaves."""
    names = [f"m{number:02}" for number in range(members + 1)]
    fewer = names[:place] + names[place + 1 :]
    there, back = assign(partitions, fewer), assign(partitions, names)
    assert len(moved(there, back)) == len(moved(back, there))
    return len(moved(there, back))


def cell(partitions: int, members: int) -> str:
    if members >= partitions:
        return "–"
    by_place = [moved_by(partitions, members, place) for place in range(members + 1)]
    least, most = min(by_place), max(by_place)
    fewest = moves_needed(partitions, members, members + 1)
    assert fewest <= least
    last = by_place[-1]
    return f"{last} ({least}–{most}; {fewest})" if least != most else f"{last} ({fewest})"


def table() -> str:
    rows = [
        ["members", *(f"{count} partitions" for count in PARTITIONS)],
        ["---"] * (1 + len(PARTITIONS)),
        *([f"{n} ↔ {n + 1}", *(cell(count, n) for count in PARTITIONS)] for n in MEMBERS),
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def test_the_guide_says_how_many_partitions_move() -> None:
    assert table() in GUIDE.read_text(), f"docs/groups.md should have:\n{table()}"


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
