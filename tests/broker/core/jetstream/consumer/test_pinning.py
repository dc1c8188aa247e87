"""Pinned clients in virtual time: who gets what, and how the pin changes hands, in both ways there are."""

from __future__ import annotations

import json
from typing import Any, Literal

import pytest

from headrace.api.times import parse_time
from headrace.broker.core.jetstream import JetStreamOptions
from jetstream_world import SECOND, Client, Inbox, World

MS = SECOND // 1000
A = {"group": "A", "batch": 10, "expires": 600 * SECOND}
MISMATCH = "423 Nats-Pin-Id mismatch"
WRONG = "423 Nats-Wrong-Pin-Id"


def open_client(handover: Literal["drain", "immediate"] = "drain", **config: Any) -> Client:
    client = World(options=JetStreamOptions(pin_handover=handover)).client()
    client.stream()
    pinned = {"priority_policy": "pinned_client", "priority_groups": ["A"]}
    client.consumer(**{**pinned, "priority_timeout": 120 * SECOND, **config})
    return client


@pytest.fixture
def drain() -> Client:
    return open_client()


@pytest.fixture
def immediate() -> Client:
    return open_client("immediate")


def fill(client: Client, count: int, **headers: str) -> None:
    for _ in range(count):
        client.publish(b"s.a", b"x" * 10, **headers)


def unpin(client: Client) -> None:
    assert "error" not in client.api("CONSUMER.UNPIN.S.C", {"group": "A"})


def pin_of(inbox: Inbox) -> str:
    """The one pin of the messages that came; they are taken."""
    pins = {message.header["Nats-Pin-Id"] for message in inbox.take()}
    assert len(pins) == 1
    return pins.pop()


def statuses(inbox: Inbox) -> list[str]:
    return [message.status for message in inbox.take()]


def state(client: Client) -> dict[str, str]:
    (group,) = client.info()["priority_groups"]
    return dict(group)


# -- who is pinned


def test_one_client_gets_everything_and_the_other_nothing(drain: Client) -> None:
    fill(drain, 50)
    fill(drain, 50, Nats_Sort="x")
    first, second = drain.pull({**A, "batch": 3}), drain.pull({**A, "batch": 3})
    pin = pin_of(first)
    assert len(pin) == 22
    drain.world.advance(5)
    assert not second.messages
    again = drain.pull({**A, "batch": 97, "id": pin})
    assert [m.header["Nats-Pin-Id"] for m in again.messages] == [pin] * 97
    assert again.messages[-1].header["Nats-Sort"] == "x"
    assert not second.messages


def test_a_wrong_id_is_refused_while_somebody_is_pinned(drain: Client) -> None:
    fill(drain, 2)
    drain.pull({**A, "batch": 1})
    assert statuses(drain.pull({**A, "id": "wrong"})) == [MISMATCH]


def test_an_id_without_a_pin_waits_for_a_message_and_ends_with_it(drain: Client) -> None:
    stale = drain.pull({**A, "id": "wrong"})
    assert not stale.messages
    fill(drain, 1)
    (end,) = stale.take()
    assert end.status == WRONG
    assert end.header == {"Nats-Pending-Messages": "10", "Nats-Pending-Bytes": "0"}


def test_a_plain_body_is_served_without_a_pin(drain: Client) -> None:
    fill(drain, 1)
    (message,) = drain.pull(b"1").take()
    assert message.header["Nats-Pin-Id"] == ""
    assert "pinned_client_id" not in state(drain)


def test_a_standby_keeps_its_bytes(drain: Client) -> None:
    drain.pull({**A, "batch": 100_000})
    standby = drain.pull({**A, "batch": 100_000, "max_bytes": 500})
    for _ in range(50):
        drain.publish(b"s.a", b"x" * 200)
    assert not standby.messages


def test_a_pin_whose_first_message_is_too_large_is_not_kept(drain: Client) -> None:
    drain.publish(b"s.a", b"x" * 200)
    assert statuses(drain.pull({**A, "max_bytes": 10})) == ["409 Message Size Exceeds MaxBytes"]
    assert pin_of(drain.pull(A))


def test_without_messages_nobody_is_ever_pinned(drain: Client) -> None:
    waiting = drain.pull({**A, "expires": 2 * SECOND})
    drain.world.advance(1)
    assert state(drain) == {"group": "A", "pinned_ts": "0001-01-01T00:00:00Z"}
    drain.world.advance(1)
    assert statuses(waiting) == ["408 Request Timeout"]


# -- how long


def test_the_pin_ends_with_its_time_though_the_pull_still_waits() -> None:
    client = open_client(priority_timeout=SECOND)
    fill(client, 1)
    inbox = client.pull({**A, "batch": 2, "expires": 2 * SECOND})
    pin = pin_of(inbox)
    client.world.advance(0.99)
    assert state(client)["pinned_client_id"] == pin
    client.world.advance(0.01)
    assert "pinned_client_id" not in state(client)
    client.world.advance(1)
    assert statuses(inbox) == ["408 Request Timeout"]


def test_only_pulls_with_the_pin_keep_it() -> None:
    client = open_client(priority_timeout=SECOND)
    fill(client, 1)
    inbox = client.pull(A)
    (message,) = inbox.messages
    client.world.advance(0.9)
    client.pull({**A, "id": pin_of(inbox)})
    client.world.advance(0.9)
    assert "pinned_client_id" in state(client)
    client.ack(message)
    fill(client, 1)
    client.world.advance(0.1)
    assert "pinned_client_id" not in state(client)


def test_a_new_timeout_holds_from_the_next_pull_on(drain: Client) -> None:
    fill(drain, 1)
    pin = pin_of(drain.pull(A))
    groups: dict[str, Any] = {"priority_policy": "pinned_client", "priority_groups": ["A"]}
    assert "error" not in drain.consumer(**groups, priority_timeout=SECOND)
    drain.pull({**A, "id": pin})
    drain.world.advance(1)
    assert "pinned_client_id" not in state(drain)


@pytest.mark.parametrize("handover", ["drain", "immediate"])
def test_three_clients_take_turns_as_each_falls_silent(
    handover: Literal["drain", "immediate"],
) -> None:
    client = open_client(handover, priority_timeout=3 * SECOND)
    fill(client, 3)
    pins: set[str] = set()
    for _ in range(3):
        inbox = client.pull({**A, "batch": 1})
        if pins:
            client.world.advance(1)
            assert not inbox.messages
            client.world.advance(2)
        client.ack(inbox.messages[0])
        pins.add(pin_of(inbox))
    assert len(pins) == 3


def test_who_stops_listening_keeps_the_pin_until_it_runs_out() -> None:
    client = open_client("immediate", priority_timeout=SECOND)
    first = client.pull(A)
    fill(client, 1)
    first.close()
    standby = client.pull({**A, "idle_heartbeat": 400 * MS})
    fill(client, 1)
    client.world.advance(0.9)
    assert statuses(standby) == ["100 Idle Heartbeat"] * 2
    client.world.advance(0.1)
    assert pin_of(standby)


# -- unpinning at once, as nats-server does


def test_immediate_the_next_message_pins_another(immediate: Client) -> None:
    first, standby = immediate.pull({**A, "batch": 30}), immediate.pull({**A, "batch": 30})
    fill(immediate, 2)
    pin = pin_of(first)
    unpin(immediate)
    assert not first.messages
    fill(immediate, 2)
    assert statuses(first) == [WRONG]
    assert pin_of(standby) not in ("", pin)


def test_immediate_a_stale_request_ends_when_its_turn_comes(immediate: Client) -> None:
    first, standby = immediate.pull(A), immediate.pull(A)
    fill(immediate, 1)
    first.take()
    unpin(immediate)
    fill(immediate, 1)
    assert pin_of(standby)
    assert not first.messages
    fill(immediate, 1)
    assert statuses(first) == [WRONG]


# -- handing over, as the specification asks


def test_drain_nothing_goes_out_until_what_is_in_flight_is_completed(drain: Client) -> None:
    first = drain.pull({**A, "batch": 4})
    standby = drain.pull({**A, "idle_heartbeat": SECOND})
    fill(drain, 4)
    one, two, three, four = first.take()
    unpin(drain)
    fill(drain, 1)
    drain.ack(one)
    drain.ack(two, b"+TERM")
    drain.ack(three, b'-NAK {"delay": 60000000000}')
    assert not standby.messages
    drain.world.advance(2)
    assert statuses(standby) == ["100 Idle Heartbeat"] * 2
    drain.ack(four, b"-NAK")
    assert [m.tokens[:2] for m in standby.messages] == [(2, 4), (1, 5)]
    assert pin_of(standby) not in ("", one.header["Nats-Pin-Id"])


def test_drain_the_ack_wait_bounds_it() -> None:
    client = open_client(ack_wait=10 * SECOND)
    fill(client, 1)
    first = client.pull({**A, "batch": 1})
    (message,) = first.take()
    client.world.advance(4)
    unpin(client)
    standby = client.pull(A)
    client.world.advance(5.9)
    assert not standby.messages
    client.world.advance(0.1)
    assert [m.tokens[:2] for m in standby.messages] == [(2, 1)]
    assert pin_of(standby) != message.header["Nats-Pin-Id"]


def test_drain_progress_reports_do_not_prolong_it_beyond_the_ack_wait() -> None:
    client = open_client(ack_wait=10 * SECOND)
    fill(client, 2)
    first = client.pull({**A, "batch": 1})
    (message,) = first.take()
    client.world.advance(4)
    unpin(client)
    standby = client.pull(A)
    client.world.advance(5)
    client.ack(message, b"+WPI")
    client.world.advance(4.9)
    assert not standby.messages
    client.world.advance(0.1)
    assert [m.stream_seq for m in standby.messages] == [2]


def test_drain_the_last_delivery_of_a_message_ends_it_too() -> None:
    client = open_client(ack_wait=SECOND, max_deliver=1)
    fill(client, 2)
    client.pull({**A, "batch": 1})
    unpin(client)
    standby = client.pull(A)
    client.world.advance(1)
    assert [m.stream_seq for m in standby.messages] == [2]


def test_drain_starts_when_the_pin_runs_out() -> None:
    client = open_client(ack_wait=30 * SECOND, priority_timeout=SECOND)
    fill(client, 2)
    first = client.pull({**A, "batch": 1})
    (message,) = first.take()
    standby = client.pull(A)
    client.world.advance(5)
    assert not standby.messages
    client.ack(message)
    assert [m.stream_seq for m in standby.messages] == [2]


def test_drain_ids_are_refused_at_once_and_the_client_may_line_up_anew(drain: Client) -> None:
    fill(drain, 2)
    first = drain.pull({**A, "batch": 1})
    (message,) = first.take()
    pin = message.header["Nats-Pin-Id"]
    unpin(drain)
    assert statuses(drain.pull({**A, "id": pin})) == [MISMATCH]
    anew = drain.pull(A)
    drain.ack(message)
    assert pin_of(anew) != pin


def test_drain_every_waiting_request_with_another_id_ends(drain: Client) -> None:
    first, second = drain.pull(A), drain.pull(A)
    fill(drain, 1)
    (message,) = first.take()
    more = drain.pull({**A, "id": message.header["Nats-Pin-Id"]})
    unpin(drain)
    assert not first.messages
    assert not more.messages
    drain.ack(message)
    fill(drain, 1)
    assert pin_of(second)
    assert statuses(first) == statuses(more) == [WRONG]


def test_drain_answers_a_pull_that_does_not_wait(drain: Client) -> None:
    fill(drain, 2)
    drain.pull({**A, "batch": 1})
    unpin(drain)
    assert statuses(drain.pull({"group": "A", "no_wait": True})) == ["404 No Messages"]
    one_shot = drain.pull({"group": "A", "no_wait": True, "expires": SECOND})
    drain.world.advance(1)
    assert statuses(one_shot) == ["408 Request Timeout"]


def test_drain_goes_over_messages_that_are_deleted(drain: Client) -> None:
    fill(drain, 2)
    drain.pull({**A, "batch": 1})
    unpin(drain)
    standby = drain.pull(A)
    drain.api("STREAM.MSG.DELETE.S", {"seq": 1})
    assert [m.stream_seq for m in standby.messages] == [2]


def test_drain_is_over_after_a_reset(drain: Client) -> None:
    fill(drain, 2)
    drain.pull({**A, "batch": 1})
    unpin(drain)
    standby = drain.pull(A)
    drain.api("CONSUMER.RESET.S.C", {"seq": 1})
    assert [m.stream_seq for m in standby.messages] == [1, 2]


def test_drain_goes_on_after_a_restart(drain: Client) -> None:
    world = drain.world
    fill(drain, 2)
    (message,) = drain.pull({**A, "batch": 1}).take()
    world.restart()
    client = world.client()
    assert "pinned_client_id" not in state(client)
    inbox = client.pull(A)
    assert not inbox.messages
    client.ack(message)
    assert [m.stream_seq for m in inbox.messages] == [2]


def test_a_second_unpin_does_not_prolong_a_handover() -> None:
    client = open_client(ack_wait=10 * SECOND)
    fill(client, 1)
    client.pull({**A, "batch": 1})
    unpin(client)
    standby = client.pull(A)
    client.world.advance(9)
    unpin(client)
    client.world.advance(1)
    assert pin_of(standby)


def test_with_nothing_in_flight_the_pin_changes_hands_at_once(drain: Client) -> None:
    fill(drain, 1)
    first = drain.pull({**A, "batch": 2})
    (message,) = first.take()
    drain.ack(message)
    standby = drain.pull(A)
    unpin(drain)
    assert not first.messages
    fill(drain, 1)
    assert statuses(first) == [WRONG]
    assert pin_of(standby)


# -- what is told


def test_advisories_name_who_got_the_pin_and_who_lost_it() -> None:
    client = open_client(priority_timeout=SECOND)
    other = client.world.client()
    told = client.subscribe(b"$JS.EVENT.ADVISORY.CONSUMER.*.S.C")
    fill(client, 1)
    (message,) = other.pull({**A, "batch": 1}).take()
    client.pull(A)
    client.ack(message)
    client.world.advance(1)
    fill(client, 1)
    unpin(client)
    unpin(client)
    advisories = [json.loads(m.payload) for m in told.take()]
    seen = [
        (a["type"].rpartition("_")[2], a.get("reason"), a.get("client", {}).get("id"))
        for a in advisories
    ]
    mine, theirs = client.session.client_id, other.session.client_id
    assert seen == [
        ("pinned", None, theirs),
        ("unpinned", "timeout", theirs),
        ("pinned", None, mine),
        ("unpinned", "admin", mine),
        ("unpinned", "admin", None),
    ]
    assert advisories[0]["client"]["kind"] == "Client"
    assert advisories[0]["client"]["acc"] == advisories[0]["account"] == "$G"


def test_info_tells_the_pin_and_since_when(drain: Client) -> None:
    drain.world.advance(10)
    fill(drain, 1)
    pin = pin_of(drain.pull(A))
    assert state(drain) == {
        "group": "A",
        "pinned_client_id": pin,
        "pinned_ts": "2023-11-14T22:13:30Z",
    }


def test_since_when_stays_and_grows_whatever_the_wall_clock_does(drain: Client) -> None:
    """Members of groups count generations by it: an owner's is one number, a later owner's a higher one."""
    clock = drain.world.clock
    fill(drain, 1)
    drain.pull(A)
    first = state(drain)["pinned_ts"]
    clock.jump(1e-9)
    assert state(drain)["pinned_ts"] == first
    clock.jump(-3_600)
    assert state(drain)["pinned_ts"] == first
    unpin(drain)
    drain.world.advance(61)  # the time of day is believed by then
    fill(drain, 1)
    drain.pull(A)
    assert parse_time(state(drain)["pinned_ts"]) == parse_time(first) + 1
