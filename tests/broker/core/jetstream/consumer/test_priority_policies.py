"""Priority policies: which waiting request may have the next message."""

from __future__ import annotations

from typing import Any

from headrace.api.consumers import ConsumerConfig, PullRequest
from headrace.broker.core.jetstream.consumer.priority_policies import (
    SERVE,
    SKIP,
    PinnedClient,
    make_policy,
)
from headrace.broker.core.jetstream.consumer.pull_queue import PullTerms, WaitingRequest
from headrace.broker.core.jetstream.statuses import WRONG_PIN_ID

SECOND = 1_000_000_000


def request(*, plain: bool = False, **fields: Any) -> WaitingRequest:
    return WaitingRequest(b"i", PullTerms(PullRequest(**fields), plain=plain), 0)


def pinned() -> tuple[PinnedClient, list[str]]:
    told: list[str] = []
    names = iter(["one", "two", "three"])
    policy = PinnedClient(10 * SECOND, lambda: next(names))
    policy.on_pinned = lambda _origin: told.append(policy.pin_id)
    return policy, told


def test_without_a_policy_everybody_is_served() -> None:
    policy = make_policy(ConsumerConfig(), lambda: "")
    assert policy.verdict(request(), 1, 0, 0) is SERVE
    assert policy.header() == b""


def test_overflow_serves_a_threshold_once_either_is_reached() -> None:
    policy = make_policy(ConsumerConfig(priority_policy="overflow"), lambda: "")
    one = request(min_pending=10, min_ack_pending=5)
    one.lane = policy.lane(one)
    assert policy.verdict(one, 9, 4, 0) is SKIP
    assert policy.verdict(one, 10, 0, 0) is SERVE
    assert policy.verdict(one, 0, 5, 0) is SERVE


def test_overflow_serves_requests_without_thresholds_first() -> None:
    policy = make_policy(ConsumerConfig(priority_policy="overflow"), lambda: "")
    assert policy.lane(request()) < policy.lane(request(min_pending=1))


def test_prioritized_serves_the_lowest_number_first() -> None:
    policy = make_policy(ConsumerConfig(priority_policy="prioritized"), lambda: "")
    assert policy.lane(request(priority=0)) < policy.lane(request(priority=9))


def test_the_first_request_without_an_id_is_pinned_and_the_others_stand_by() -> None:
    policy, told = pinned()
    first, second = request(group="A"), request(group="A")
    assert policy.verdict(first, 1, 0, 0) is SERVE
    assert first.pin_id == "one"
    assert policy.header() == b"Nats-Pin-Id: one\r\n"
    assert policy.verdict(second, 1, 0, 0) is SKIP
    assert policy.verdict(first, 1, 0, 0) is SERVE
    assert told == ["one"]


def test_a_stale_id_ends_when_a_message_is_ready() -> None:
    policy, _ = pinned()
    assert policy.verdict(request(group="A", id="old"), 1, 0, 0) is WRONG_PIN_ID
    policy.verdict(request(group="A"), 1, 0, 0)
    assert policy.verdict(request(group="A", id="old"), 1, 0, 0) is WRONG_PIN_ID


def test_only_a_pull_with_the_pin_keeps_it_alive() -> None:
    policy, _ = pinned()
    policy.verdict(request(group="A"), 1, 0, 0)
    policy.pulled(request(group="A"), 5 * SECOND)
    assert policy.deadline_ns == 10 * SECOND
    policy.pulled(request(group="A", id="one"), 5 * SECOND)
    assert not policy.is_late(10 * SECOND)
    assert policy.is_late(15 * SECOND)


def test_a_pin_whose_first_message_did_not_fit_is_released() -> None:
    policy, _ = pinned()
    one = request(group="A", max_bytes=1)
    policy.verdict(one, 1, 0, 0)
    policy.rejected(one)
    assert policy.pin_id == ""


def test_a_plain_request_is_served_without_a_pin_while_nobody_has_one() -> None:
    policy, told = pinned()
    assert policy.verdict(request(plain=True), 1, 0, 0) is SERVE
    assert policy.header() == b"Nats-Pin-Id: \r\n"
    assert not told
