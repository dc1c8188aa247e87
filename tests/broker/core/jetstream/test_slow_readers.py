"""Readers whose unsent output is bounded: what they asked for never costs them the connection."""

from __future__ import annotations

import random
from typing import Any

import pytest

from headrace.broker.core.hub import Hub
from headrace.broker.core.options import HubOptions
from jetstream_world import Client, World

MIB = 1024 * 1024


def world_with_room(nbytes: int) -> tuple[World, Client]:
    world = World()
    world.hub = Hub(world.clock, random.Random(1), HubOptions(outbound_bytes_max=nbytes))
    world.hub.start_jetstream(world.storage)
    return world, world.client()


def fill(client: Client, megabytes: int) -> None:
    client.stream(allow_direct=True)
    for _ in range(4 * megabytes):
        client.publish(b"s.a", b"x" * (MIB // 4))


@pytest.mark.parametrize("room", [2, 8])
def test_a_direct_batch_ends_where_more_would_be_too_much(room: int) -> None:
    _, client = world_with_room(room * MIB)
    fill(client, 9)
    got = client.request(b"$JS.API.DIRECT.GET.S", b'{"seq":1,"batch":1000}').take()
    end = got[-1]
    assert end.status == "204 EOB"
    assert int(end.header["Nats-Num-Pending"]) == 36 - (len(got) - 1)
    assert 1 < len(got) - 1 < 36
    assert not client.errors


def test_direct_batches_one_behind_the_other_share_what_there_is() -> None:
    _, client = world_with_room(4 * MIB)
    fill(client, 5)
    inboxes = [client.subscribe() for _ in range(3)]
    request = b'{"seq":1,"batch":1000}'
    client.send(
        b"".join(
            b"PUB $JS.API.DIRECT.GET.S %b %d\r\n%b\r\n" % (i.subject, len(request), request)
            for i in inboxes
        )
    )
    assert [inbox.messages[-1].status for inbox in inboxes] == ["204 EOB"] * 3
    assert not client.errors


@pytest.mark.parametrize("push", [False, True])
def test_a_long_backlog_comes_in_pieces_to_who_has_little_room(push: bool) -> None:
    world, client = world_with_room(2 * MIB)
    fill(client, 6)
    if push:
        inbox = client.subscribe()
        client.consumer(ack_policy="none", deliver_subject=inbox.subject.decode())
    else:
        client.consumer(ack_policy="none")
        inbox = client.pull(b"100")
    for _ in range(24):  # each piece makes room for the next
        world.tick()
    assert not client.errors
    assert len(inbox.messages) == 24


@pytest.mark.parametrize("requests", [1, 2])
@pytest.mark.parametrize("policy", ["none", "overflow"])
def test_requests_in_turn_end_a_pass_when_their_reader_has_little_room(
    policy: str, requests: int
) -> None:
    world, client = world_with_room(2 * MIB)
    fill(client, 6)
    of_group: dict[str, Any] = {}
    body = b'{"batch":100}'
    if policy == "overflow":
        of_group = {"priority_policy": policy, "priority_groups": ["g"]}
        body = b'{"batch":100,"group":"g","min_pending":1}'
    client.consumer(**of_group)
    inboxes = [client.pull(body) for _ in range(requests)]
    for _ in range(24):  # each piece makes room for the next
        world.tick()
    assert not client.errors
    assert sum(len(inbox.messages) for inbox in inboxes) == 24
