"""One member's life by its API calls: others and we change the same things in the same way.

The calls of a life are written down by a proxy. Both ask the server in ways of their own. What is compared is
what they change, the consumer that comes of it, and what their pulls say of the priority group.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import peers
from group_processes.crowd import Crowd
from group_processes.listening_proxy import Call, ListeningProxy
from group_processes.lives import (
    ACK_WAIT,
    GROUP,
    LIVES,
    STREAM,
    changes,
    create_again,
    pulls,
    subjects,
)
from group_processes.strangers import Stranger
from group_processes.worklog import Task
from headrace.client import Connection


@pytest.mark.parametrize("kind", ["elastic", "static"])
async def test_both_change_the_same_things(
    kind: str,
    server: peers.ServerProcess,
    connection: Connection,
    stranger: Stranger,
    tmp_path: Path,
) -> None:
    js = connection.jetstream()
    lives: dict[bool, list[Call]] = {}
    configs: dict[bool, list[Any]] = {}
    for peer in (True, False):
        task = Task(server.url, kind, STREAM, GROUP, "", "", "", ack_wait=ACK_WAIT)
        directory = tmp_path / f"{peer}"
        directory.mkdir()
        async with ListeningProxy(server.host, server.port) as proxy:
            with Crowd(directory, task, stranger) as crowd:
                worker = await LIVES[kind](crowd, js, proxy.url, peer=peer)
                await crowd.stop(worker)
            lives[peer] = proxy.calls
        configs[peer] = [
            await create_again(connection, subject, body)
            for subject, body in changes(proxy.calls)
            if subject.startswith("CONSUMER.CREATE")
        ]
        for name in [name async for name in js.stream_names()]:
            await js.delete_stream(name)
    assert subjects(lives[False]) == subjects(lives[True])
    assert configs[False] == configs[True]
    assert len(configs[True]) == {"elastic": 3, "static": 1}[kind]
    assert pulls(lives[False]) == pulls(lives[True])
