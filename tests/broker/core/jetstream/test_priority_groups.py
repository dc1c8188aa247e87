"""Priority groups besides pins: what is asked for, thresholds, priorities, and the API."""

from __future__ import annotations

from typing import Any

import pytest

from jetstream_world import SECOND, Client, Inbox, World

MS = SECOND // 1000
POLICIES = ["overflow", "pinned_client"]


@pytest.fixture
def client() -> Client:
    client = World().client()
    client.stream()
    return client


def make(client: Client, policy: str, **config: Any) -> dict[str, Any]:
    return client.consumer(**{"priority_policy": policy, "priority_groups": ["A"], **config})


def create(client: Client, config: dict[str, Any], **request: Any) -> dict[str, Any]:
    """A create request that says nothing but this."""
    config = {"durable_name": "C", "priority_groups": ["A"], **config}
    return client.api("CONSUMER.CREATE.S.C", {"stream_name": "S", "config": config, **request})


def pull(client: Client, **body: Any) -> Inbox:
    return client.pull({"group": "A", "expires": 60 * SECOND, **body})


def fill(client: Client, count: int) -> None:
    for _ in range(count):
        client.publish(b"s.a", b"x")


def sequences(inbox: Inbox) -> list[int]:
    return [message.stream_seq for message in inbox.take()]


# -- configuration


@pytest.mark.parametrize(
    ("config", "err_code"),
    [
        ({"priority_policy": "pinned_client"}, 0),
        ({"priority_policy": "overflow"}, 0),
        ({"priority_policy": "prioritized"}, 0),
        ({"priority_policy": "overflow", "priority_groups": []}, 10159),
        ({"priority_policy": "overflow", "priority_groups": [""]}, 10161),
        *[
            ({"priority_policy": "overflow", "priority_groups": [name]}, 10162)
            for name in (" ", "\t", "\r\n", "a b", "abcdefghijklmnopqrstuvwxyz", "ä")
        ],
        *[
            ({"priority_policy": "overflow", "priority_groups": [name]}, 0)
            for name in ("A", "group/consumer=A", "a-b_c", "x" * 16)
        ],
        ({"priority_policy": "overflow", "priority_groups": ["A", "B"]}, 10012),
        ({"priority_policy": "none"}, 10196),
        ({}, 10196),
        ({"priority_groups": [], "priority_timeout": SECOND}, 10197),
        ({"priority_policy": "weird"}, 10025),
    ],
)
def test_settings_that_do_not_belong_together_are_refused(
    client: Client, config: dict[str, Any], err_code: int
) -> None:
    answer = create(client, {"ack_policy": "explicit", **config})
    assert answer.get("error", {}).get("err_code", 0) == err_code


@pytest.mark.parametrize("policy", POLICIES)
def test_explicit_acks_are_assumed(client: Client, policy: str) -> None:
    answer = create(client, {"priority_policy": policy})
    assert answer["config"]["ack_policy"] == "explicit"
    assert answer["config"]["ack_wait"] == 30 * SECOND
    assert create(client, {"priority_policy": policy}, action="create").get("error") is None


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("acks", ["none", "all"])
def test_other_acks_are_refused(client: Client, policy: str, acks: str) -> None:
    error = create(client, {"priority_policy": policy, "ack_policy": acks})["error"]
    assert error["description"] == (
        f"priority policy {policy} requires ack policy explicit, and not {acks}"
    )
    assert client.api("CONSUMER.NAMES.S")["consumers"] == []


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("said", [{}, {"ack_policy": "none"}])
def test_pedantic_requests_must_say_explicit(
    client: Client, policy: str, said: dict[str, str]
) -> None:
    error = create(client, {"priority_policy": policy, **said}, pedantic=True)["error"]
    assert error["description"] == (
        f"pedantic mode: ack_policy must be explicit if priority_policy is {policy}"
    )


def test_prioritized_takes_any_acks(client: Client) -> None:
    answer = create(client, {"priority_policy": "prioritized"})
    assert answer["config"]["ack_policy"] == "none"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"priority_policy": "overflow", "priority_timeout": 0}, "priority policy"),
        ({"priority_groups": ["B"]}, "priority groups"),
        (
            {"priority_policy": "none", "priority_groups": [], "priority_timeout": 0},
            "priority policy",
        ),
    ],
)
def test_groups_and_policy_are_fixed_for_life(
    client: Client, change: dict[str, Any], words: str
) -> None:
    make(client, "pinned_client")
    error = make(client, "pinned_client", **change)["error"]
    assert (error["err_code"], error["description"]) == (10012, f"{words} can not be updated")
    assert client.info()["config"]["priority_policy"] == "pinned_client"


def test_the_timeout_may_change(client: Client) -> None:
    assert make(client, "pinned_client")["config"]["priority_timeout"] == 120 * SECOND
    answer = make(client, "pinned_client", priority_timeout=7 * SECOND)
    assert answer["config"]["priority_timeout"] == 7 * SECOND


# -- which pulls are refused


@pytest.mark.parametrize(
    ("policy", "body", "status"),
    [
        ("pinned_client", {"batch": 1}, "Priority Group missing"),
        ("overflow", {"batch": 1}, "Priority Group missing"),
        ("prioritized", {"batch": 1}, "Priority Group missing"),
        ("pinned_client", {"group": "B"}, "Invalid Priority Group"),
        ("overflow", {"group": "A", "id": "x"}, "Not a Pinned Client Priority consumer"),
        ("none", {"id": "x"}, "Not a Pinned Client Priority consumer"),
        ("pinned_client", {"group": "A", "min_pending": 1}, "Not a Overflow Priority consumer"),
        ("none", {"min_ack_pending": 1}, "Not a Overflow Priority consumer"),
        ("prioritized", {"group": "A", "priority": 10}, "Priority must be between 0 and 9"),
        ("prioritized", {"group": "A", "priority": -5}, "Priority must be between 0 and 9"),
        ("none", {"priority": 10}, "Priority must be between 0 and 9"),
    ],
)
def test_a_refused_pull_is_told_once_and_never_served(
    client: Client, policy: str, body: dict[str, Any], status: str
) -> None:
    if policy == "none":
        client.consumer()
    else:
        make(client, policy)
    inbox = client.pull({"expires": 60 * SECOND, **body})
    fill(client, 1)
    client.world.advance(1)
    assert [m.status for m in inbox.take()] == [f"400 Bad Request - {status}"]
    assert client.info()["num_waiting"] == 0


# -- overflow


def test_either_threshold_is_enough_and_below_both_a_request_waits(client: Client) -> None:
    make(client, "overflow")
    fill(client, 50)
    short = pull(client, min_pending=1000, expires=SECOND)
    client.world.advance(1)
    assert [m.status for m in short.take()] == ["408 Request Timeout"]
    assert sequences(pull(client, min_pending=10)) == [1]
    assert sequences(pull(client, batch=4)) == [2, 3, 4, 5]
    assert sequences(pull(client, min_pending=1000, min_ack_pending=5)) == [6]


def test_thresholds_are_looked_at_whenever_something_changes(client: Client) -> None:
    make(client, "overflow")
    fill(client, 1)
    acks = pull(client, min_ack_pending=1)
    assert not acks.messages
    assert sequences(pull(client, min_pending=1)) == [1]
    fill(client, 2)
    assert sequences(acks) == [2]
    many = pull(client, min_pending=10)
    fill(client, 8)
    assert not many.messages
    fill(client, 1)
    assert sequences(many) == [3]
    late = pull(client, min_ack_pending=8)
    assert not late.messages
    assert sequences(pull(client, batch=5)) == [4, 5, 6, 7, 8]
    assert sequences(late) == [9]


def test_a_threshold_reached_in_the_middle_of_a_batch_counts_at_once(client: Client) -> None:
    make(client, "overflow")
    first = pull(client, min_ack_pending=2)
    fill(client, 4)
    second = pull(client, min_pending=1, batch=3)
    assert sequences(second) == [1, 2, 4]
    assert sequences(first) == [3]


def test_a_threshold_of_one_is_a_standby_behind_those_without(client: Client) -> None:
    make(client, "overflow", max_ack_pending=1)
    standby, worker = pull(client, min_pending=1, batch=5), pull(client, batch=1)
    fill(client, 2)
    assert not standby.messages
    client.ack(worker.messages[0])
    assert sequences(worker) == [1]
    assert sequences(standby) == [2]


def test_a_plain_body_belongs_to_no_group_and_is_served(client: Client) -> None:
    make(client, "overflow")
    fill(client, 2)
    assert sequences(client.pull(b"2")) == [1, 2]


def test_below_the_threshold_a_pull_that_does_not_wait_is_answered(client: Client) -> None:
    make(client, "overflow")
    fill(client, 3)
    inbox = client.pull({"group": "A", "no_wait": True, "min_pending": 9})
    assert [m.status for m in inbox.take()] == ["404 No Messages"]


# -- prioritized


def test_lower_numbers_are_served_first_and_equal_ones_in_turn(client: Client) -> None:
    make(client, "prioritized")
    third, first = pull(client, priority=3), pull(client, priority=1)
    second, twin = pull(client, priority=2, batch=2), pull(client, priority=2, batch=2)
    fill(client, 6)
    assert sequences(first) == [1]
    assert sequences(second) == [2, 4]
    assert sequences(twin) == [3, 5]
    assert sequences(third) == [6]


def test_a_lower_number_cuts_in(client: Client) -> None:
    make(client, "prioritized")
    third = pull(client, priority=3, batch=3)
    fill(client, 1)
    second = pull(client, priority=2, batch=2)
    fill(client, 1)
    first = pull(client, priority=1)
    fill(client, 4)
    assert (sequences(first), sequences(second), sequences(third)) == ([3], [2, 4], [1, 5, 6])


# -- unpin


@pytest.mark.parametrize(
    ("target", "body", "err_code"),
    [
        ("S.C", {"group": "A"}, 0),
        ("S.C", None, 10025),
        ("S.C", {}, 10025),
        ("S.C", {"group": ""}, 10025),
        ("S.C", {"group": "a b"}, 10162),
        ("S.C", {"group": "x" * 17}, 10162),
        ("S.C", {"group": "B"}, 10160),
        ("S.D", {"group": "A"}, 10014),
        ("T.C", {"group": "A"}, 10059),
    ],
)
@pytest.mark.parametrize("policy", ["pinned_client", "overflow", "prioritized"])
def test_unpin_says_what_is_wrong(
    client: Client, policy: str, target: str, body: dict[str, Any] | None, err_code: int
) -> None:
    make(client, policy)
    answer = client.api(f"CONSUMER.UNPIN.{target}", body)
    assert answer["type"] == "io.nats.jetstream.api.v1.consumer_unpin_response"
    assert answer.get("error", {}).get("err_code", 0) == err_code


@pytest.mark.parametrize("policy", ["overflow", "prioritized"])
def test_info_lists_the_group_of_every_policy(client: Client, policy: str) -> None:
    make(client, policy)
    assert client.info()["priority_groups"] == [{"group": "A", "pinned_ts": "0001-01-01T00:00:00Z"}]
