"""Random changes of everything under traffic: `make changes` for an hour, here for seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

import postgres_server
from changes.places import Kind
from changes.soak import Plan, soak

SECONDS = 2.0


@pytest.mark.peer
@pytest.mark.parametrize(
    ("server", "jobs"), [("headrace", "sqlite"), ("nats-server", "postgres")], ids=str
)
async def test_random_changes_lose_double_and_disorder_nothing(
    server: Kind, jobs: Literal["sqlite", "postgres"], tmp_path: Path
) -> None:
    if jobs == "postgres":
        postgres_server.require_postgres()
    told: list[str] = []
    plan = Plan(
        server, jobs, SECONDS, seed=7, between_s=0.1, pace_s=0.05, ack_waits=(2.0, 3.0), least=4
    )
    report = await soak(plan, tmp_path, told.append)
    assert report.wrong == [], "\n".join(told)
    assert report.changes >= 4
    assert all(lane["handled"] for lane in report.lanes.values())
