from __future__ import annotations

import json
import random
from typing import Any

import pytest

from headrace.broker.core.hub import Hub
from headrace.broker.core.monitor.connections import connz
from headrace.broker.core.monitor.server import healthz, jsz, varz
from headrace.broker.core.net.session import Session
from headrace.broker.core.options import HubOptions
from headrace.broker.core.peer import Peer
from headrace.broker.store import MemoryStorage
from headrace.clock import ManualClock
from headrace.errors import ConfigurationError
from headrace.limits import OUTBOUND_BLOCKED_BYTES
from jetstream_world import World

PLAIN = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"name":"n","lang":"l"}\r\n'


def make_hub(**options: Any) -> Hub:
    return Hub(ManualClock(), random.Random(1), HubOptions(**options))


def greeted(hub: Hub) -> Session:
    session = hub.connect(Peer("10.0.0.9", 4000))
    hub.end_of_tick()
    session.take_output()
    session.receive(PLAIN)
    return session


def test_a_tick_returns_each_session_with_something_to_say_once() -> None:
    hub = make_hub()
    first, second = greeted(hub), greeted(hub)
    assert hub.end_of_tick() == []
    first.receive(b"SUB a 1\r\nSUB * 2\r\n")
    second.receive(b"PUB a 1\r\nx\r\nPING\r\n")
    assert hub.end_of_tick() == [first, second]
    assert b"".join(first.take_output()).count(b"MSG a") == 2
    assert second.take_output() == [b"PONG\r\n"]
    assert hub.end_of_tick() == []


def test_one_connection_too_many_is_greeted_and_hung_up_on() -> None:
    hub = make_hub(connections_max=1)
    greeted(hub)
    session = hub.connect(Peer())
    assert session.closed
    said = b"".join(session.take_output())
    assert said.startswith(b"INFO {")
    assert said.endswith(b"-ERR 'maximum connections exceeded'\r\n")
    assert len(hub.sessions) == 1


def test_the_next_deadline_is_that_of_the_first_timer() -> None:
    hub = make_hub(ping_first_ns=5)
    assert hub.next_deadline_ns() is None
    greeted(hub)
    assert hub.next_deadline_ns() == 5
    assert hub.run_timers() == 0


def test_who_waits_for_a_full_output_is_called_when_it_has_room() -> None:
    hub = make_hub()
    session = greeted(hub)
    session.receive(b"SUB in 1\r\n")
    called: list[int] = []
    hub.router.on_unblocked(lambda: called.append(1))
    target = hub.router.resolve(b"in")
    assert target is not None
    assert not target.blocked
    hub.wrote(session, OUTBOUND_BLOCKED_BYTES + 1)
    assert target.blocked
    hub.wrote(session, OUTBOUND_BLOCKED_BYTES - 1)
    assert called == []  # a little room is not worth a round
    hub.wrote(session, 0)
    hub.wrote(session, 0)
    assert called == [1]
    assert not target.blocked


def test_what_blocked_within_one_tick_is_free_when_the_socket_took_it() -> None:
    hub = make_hub()
    session = greeted(hub)
    session.receive(b"SUB in 1\r\n")
    called: list[int] = []
    hub.router.on_unblocked(lambda: called.append(1))
    target = hub.router.resolve(b"in")
    assert target is not None
    for _ in range(9):
        target.send(b"in", b"", b"", bytes(1024 * 1024))
    assert target.blocked
    hub.end_of_tick()
    session.take_output()
    hub.wrote(session, 0)
    assert called == [1]


def test_reading_stops_while_the_disk_is_far_behind() -> None:
    hub = make_hub(ingest_pending_bytes_max=100)

    class Slow(MemoryStorage):
        pending_bytes = 0  # type: ignore[misc]

    storage = Slow()
    hub.start_jetstream(storage)
    assert not hub.ingest_blocked
    storage.pending_bytes = 101  # type: ignore[misc]
    assert hub.ingest_blocked


def test_the_greeting_tells_of_jetstream_and_of_leaving() -> None:
    hub = make_hub()
    hub.start_jetstream(MemoryStorage())
    session = hub.connect(Peer())
    info = json.loads(b"".join(session.take_output())[5:])
    assert info["jetstream"] is True
    assert "ldm" not in info
    hub.announce_shutdown()
    assert b'"ldm":true' in b"".join(session.take_output())
    hub.shutdown()
    hub.close_sessions()
    assert session.closed
    assert session.close_reason == "Server Shutdown"


def test_varz_counts_living_and_ended_connections() -> None:
    hub = make_hub(server_name="mill")
    for _ in range(2):
        session = greeted(hub)
        session.receive(b"SUB a 1\r\nPUB a 1\r\nx\r\n")
        hub.end_of_tick()
        session.take_output()
    session.disconnected()
    document = varz(hub, {"mem": 7})
    assert document["server_name"] == "mill"
    assert (document["connections"], document["total_connections"]) == (1, 2)
    assert (document["in_msgs"], document["out_msgs"]) == (2, 3)
    assert document["out_bytes"] > 0
    assert document["subscriptions"] == 1
    assert document["mem"] == 7
    assert document["jetstream"] == {}
    json.dumps(document)


def test_connz_pages_through_connections_and_shows_one() -> None:
    hub = make_hub()
    sessions = [greeted(hub) for _ in range(3)]
    sessions[1].receive(b"SUB a.* 1\r\n")
    document = connz(hub, offset=1, limit=1, subscriptions="list")
    assert (document["num_connections"], document["total"]) == (1, 3)
    (entry,) = document["connections"]
    assert entry["cid"] == sessions[1].client_id
    assert entry["name"] == "n"
    assert entry["subscriptions_list"] == ["a.*"]
    only = connz(hub, cid=sessions[2].client_id)
    assert [entry["cid"] for entry in only["connections"]] == [sessions[2].client_id]
    json.dumps(document)


def test_jsz_and_healthz_follow_jetstream_and_the_disk() -> None:
    hub = make_hub(sync="os", store_dir="/data")
    assert jsz(hub)["disabled"] is True
    assert healthz(hub) == (200, {"status": "ok"})

    class Broken(MemoryStorage):
        failed = None  # type: ignore[misc]

    storage = Broken()
    hub.start_jetstream(storage)
    document = jsz(hub)
    assert document["streams"] == 0
    assert document["config"]["sync"] == "os"
    assert document["config"]["store_dir"] == "/data"
    assert varz(hub)["jetstream"]["stats"]["api"]["level"] == 4
    json.dumps(document)
    storage.failed = OSError("disk gone")  # type: ignore[misc, assignment]
    status, answer = healthz(hub)
    assert status == 503
    assert "disk gone" in answer["error"]
    hub.is_shutting_down = True
    assert healthz(hub)[0] == 503


def test_streams_do_not_appear_before_clients_that_are_connected() -> None:
    hub = make_hub()
    greeted(hub)
    with pytest.raises(ConfigurationError, match="before the first client"):
        hub.start_jetstream(MemoryStorage())
    assert hub.storage is None


def test_what_an_ack_lets_out_can_be_written_before_the_message_is_removed() -> None:
    world = World()
    client = world.client()
    client.api("STREAM.CREATE.Q", {"name": "Q", "subjects": ["q"], "retention": "workqueue"})
    config = {"durable_name": "C", "ack_policy": "explicit", "max_ack_pending": 1}
    client.api("CONSUMER.CREATE.Q.C", {"stream_name": "Q", "config": config})
    for _ in range(2):
        client.publish(b"q", b"x")
    inbox = client.request(b"$JS.API.CONSUMER.MSG.NEXT.Q.C", b'{"batch":2,"expires":60000000000}')
    [first] = inbox.take()
    client.session.receive(b"PUB %b 0\r\n\r\n" % first.reply)
    world.hub.deliver()
    assert world.hub.to_write() == [client.session]
    client.received(client.session.take_output())
    assert [message.stream_seq for message in inbox.take()] == [2]
    assert world.streams["Q"].store.messages == 2
    assert world.hub.settle() == []
    assert world.streams["Q"].store.messages == 1
