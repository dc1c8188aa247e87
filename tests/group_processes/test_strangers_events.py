"""Every member of a group has an instance of ours and one of another implementation, while they and the
group's record suffer random events. The record is changed by the verbs of both.

A few events are played where the Go implementation is there; ``make groups`` plays HEADRACE_GROUP_EVENTS for
each kind of group and server. HEADRACE_SEED names the events.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

import peers
from group_processes.crowd import Crowd, PeerVerbs, Publisher
from group_processes.places import OneServer
from group_processes.strangers import Stranger
from group_processes.test_random_events import (
    EVENTS,
    GROUP,
    KEYS,
    MEMBERS,
    SEED,
    STREAM,
    Setup,
    create,
)
from group_processes.trouble import Trouble, events_of
from group_processes.verbs import OurVerbs, TheirVerbs, Verbs
from group_processes.worklog import Task
from headrace.client import Connection

pytestmark = [pytest.mark.timeout(3600)]

SETUPS = [Setup("elastic", "interoperable", 1), Setup("static", "interoperable", 1)]
ACK_WAIT = 2.0  # with 1 s the pulls of others last as long as their pins
WORK_S = float(os.environ.get("HEADRACE_GROUP_WORK", "0.005"))
EVENTS_IN_SHORT = 8


@pytest.mark.parametrize("setup", SETUPS, ids=str)
async def test_order_and_exclusion_survive_random_events_beside_strangers(
    setup: Setup,
    server: peers.ServerProcess,
    connection: Connection,
    stranger: Stranger,
    verb: PeerVerbs,
    tmp_path: Path,
) -> None:
    if stranger.name != "go" and not EVENTS:
        pytest.skip("long: make groups")
    js = connection.jetstream()
    place = OneServer(server)
    await create(js, setup, place.replicas)
    task = Task(server.url, setup.kind, STREAM, GROUP, "", "", "", ack_wait=ACK_WAIT, work=WORK_S)
    verbs: list[Verbs] = [
        OurVerbs(js, setup.kind, STREAM, GROUP),
        TheirVerbs(verb, setup.kind, STREAM, GROUP),
    ]
    seed = SEED + SETUPS.index(setup)
    with Crowd(tmp_path, task, stranger) as crowd:
        trouble = Trouble(seed, js, crowd, place, GROUP, MEMBERS, verbs=verbs, beside=True)
        try:
            await trouble.begin()
            async with Publisher(js, crowd, KEYS) as publisher:
                await crowd.until_handled(20)
                events = events_of(setup.kind, restarts=False)
                await trouble.play(EVENTS or EVENTS_IN_SHORT, events)
                published = await publisher.finish()
            await trouble.end()
            await crowd.until_all_handled(published)
            await trouble.stop()
        finally:
            trouble.close()
            print(f"{setup}, seed {seed}: {dict(Counter(trouble.played))}")
        verdict = crowd.judge(published)
        own = stranger.forgive(verdict, setup.kind)
        who = Counter(line.worker.partition("-")[0] for line in crowd.lines if line.what == "done")
        print(f"{verdict}, {own} of the strangers' own; by {dict(who)}")
        assert not verdict.faults, f"seed {seed}:\n{verdict}"
        assert {*who} == {"ours", "peer"} or not EVENTS
