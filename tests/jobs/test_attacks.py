"""While a service is attacked, a neighbour goes on: every kind of attack, a few of its steps each.

``make hostile`` lets each go on for longer, and says how long the neighbour waits.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.jobs.client import AsyncJobsClient
from jobs_attacks import ATTACKS, Attacking, Neighbour, serving

PUBLISHES = 20
SCALE = 0.25
BEHIND_MAX = 4
"""So many steps of who writes, of two at a time, may end while the neighbour waits for one answer."""
WRITERS = ("big batches", "big filters", "costly filters")


@pytest.mark.one_database
async def test_a_neighbour_is_served_during_every_attack(tmp_path: Path, database_url: str) -> None:
    async with (
        serving(tmp_path, database_url, SCALE) as victim,
        AsyncJobsClient(victim.url, timeout_s=120, tls=victim.tls) as client,
    ):
        neighbour = Neighbour(client)
        for name in ATTACKS:
            async with Attacking(name, victim) as attack:
                behind = []
                for _ in range(PUBLISHES):
                    before = attack.steps
                    await neighbour.publish()
                    behind.append(attack.steps - before)
                assert await neighbour.work_off() == PUBLISHES, name
                if name in WRITERS:
                    assert max(behind) <= BEHIND_MAX, (name, behind)
