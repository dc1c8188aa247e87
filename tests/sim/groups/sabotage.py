"""Members that break their word, each in one way. A simulation that does not find them out is worthless."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import pytest

from headrace.api.consumers import ConsumerInfo
from headrace.groups.member.consumer import member_consumer
from headrace.groups.member.consumer.consuming import Consuming
from headrace.groups.member.consumer.machine import Deleted, Event, Lost
from headrace.groups.member.consumer.member_consumer import MemberConsumer
from headrace.groups.member.handlers.handling import Handling
from headrace.groups.member.handlers.on_threads import OnThreads
from headrace.groups.member.intake import Intake
from headrace.groups.member.lease import Lease, Takeover
from headrace.groups.member.pinned import Renewal
from headrace.handling.key_order import Lanes

__all__ = ["SABOTAGES", "Sabotage"]


def lease_is_not_checked(patch: pytest.MonkeyPatch) -> None:
    def begin(lease: Lease, seconds: float, since: float) -> None:
        lease._seconds = seconds
        lease.until = since + 1_000_000

    patch.setattr(Lease, "__init__", begin)


def buffer_is_not_dropped_when_the_pin_is_lost(patch: pytest.MonkeyPatch) -> None:
    finish = Consuming._finish

    def finish_but_go_on(consuming: Consuming, event: Event) -> None:
        if isinstance(event, Lost) and consuming.is_active and not consuming._leaving:
            consuming.outcome.set_result(event)
            consuming._consumption.abandon()
            assert consuming.generation is not None
            consuming.generation.lease.until += 1_000_000
        else:
            finish(consuming, event)

    patch.setattr(Consuming, "_finish", finish_but_go_on)


def retry_sends_back(patch: pytest.MonkeyPatch) -> None:
    async def failed(handling: Handling, message: Any, error: BaseException) -> None:
        message.nak(0.05)

    patch.setattr(Handling, "failed", failed)


def change_does_not_wait_for_handlers(patch: pytest.MonkeyPatch) -> None:
    async def give_up(consuming: Consuming) -> bool:
        consuming._consumption.abandon()
        await consuming._delete()
        return True

    patch.setattr(Consuming, "_give_up", give_up)


def new_owner_does_not_wait_for_the_former_ones_messages(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Takeover, "is_complete", lambda *_: True)


def lost_messages_are_overtaken(patch: pytest.MonkeyPatch) -> None:
    async def next_batch(intake: Intake, max_messages: int = 0) -> Any:
        return await intake._consumption.next_batch(max_messages)

    patch.setattr(Intake, "next_batch", next_batch)


def consumer_is_deleted_under_its_owner(patch: pytest.MonkeyPatch) -> None:
    async def delete(place: MemberConsumer) -> Event:
        await place._shared.js.delete_consumer(place._shared.stream, place._name)
        return Deleted()

    patch.setattr(MemberConsumer, "_delete", delete)


def standby_leaves_with_the_pin(patch: pytest.MonkeyPatch) -> None:
    async def receive_last(consuming: Consuming) -> None:
        await asyncio.sleep(0)

    patch.setattr(Consuming, "_receive_last", receive_last)


def two_lanes_take_one_key(patch: pytest.MonkeyPatch) -> None:
    add = Lanes.add
    numbers = iter(range(1 << 60))

    def add_anywhere(lanes: Lanes[Any], key: Hashable, item: Any) -> None:
        add(lanes, (key, next(numbers) % 2), item)

    patch.setattr(Lanes, "add", add_anywhere)


def pin_is_kept_by_who_leaves(patch: pytest.MonkeyPatch) -> None:
    async def let_go(*_: object) -> None:
        await asyncio.sleep(0)

    patch.setattr("headrace.groups.member.pinned.Pinned.let_go", let_go)


def owner_without_a_pin_counts_for_nothing(patch: pytest.MonkeyPatch) -> None:
    def is_in_use(info: ConsumerInfo) -> bool:
        return any(group.pinned_client_id for group in info.priority_groups)

    patch.setattr(member_consumer, "is_in_use", is_in_use)


def late_renewal_is_not_awaited(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Renewal, "is_overdue", lambda _: False)


def thread_begins_what_was_sent_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OnThreads, "stop", lambda _: None)


class Sabotage(NamedTuple):
    """What is broken, and in which casts that shows soon; ``seed`` showed it when somebody looked last."""

    breaks: Callable[[pytest.MonkeyPatch], None]
    cast: dict[str, Any]
    seed: int = 0


_BUSY = {"genre": "wild", "backlog": 5, "handler_seconds": 0.3, "max_ack_pending": 50}
_RIVALS = {"members": 1, "instances": 2, **_BUSY}
_CALM = {"changes": ("rejoin",), "slow_share": 0.0, "failing_share": 0.0}
_CHANGES = {"kind": "elastic", "changes": ("map", "add", "drop")}
_STEPPING = {
    **_BUSY,
    "kind": "elastic",
    "instances": 2,
    "changes": ("map", "step down"),
    "pin_handover": "immediate",
}
_PLANNED = {
    "genre": "planned",
    "instances": 2,
    "handler_seconds": 0.005,
    "slow_share": 0.0,
    "failing_share": 0.0,
    "delay": 0.0005,
}

SABOTAGES = [
    Sabotage(
        lease_is_not_checked,
        {**_RIVALS, "ack_wait": 1.0, "faults": ("stall", "cut"), "changes": ("step down",)},
        1,
    ),
    Sabotage(
        buffer_is_not_dropped_when_the_pin_is_lost,
        {**_RIVALS, "changes": ("step down", "rejoin")},
    ),
    Sabotage(retry_sends_back, {**_BUSY, "failing_share": 0.1, "on_failure": "retry"}),
    Sabotage(change_does_not_wait_for_handlers, {**_BUSY, **_CHANGES, "faults": ("freeze",)}, 1),
    Sabotage(
        new_owner_does_not_wait_for_the_former_ones_messages,
        {**_RIVALS, "faults": ("kill",), "pin_handover": "immediate"},
        11,
    ),
    Sabotage(
        lost_messages_are_overtaken, {**_BUSY, "handler_seconds": 0.02, "faults": ("cut",)}, 8
    ),
    Sabotage(
        consumer_is_deleted_under_its_owner,
        {**_BUSY, **_CHANGES, "instances": 2, "layout": "interoperable"},
        8,
    ),
    Sabotage(standby_leaves_with_the_pin, {**_PLANNED, "changes": ("rejoin",)}, 74),
    Sabotage(two_lanes_take_one_key, {**_BUSY, "kind": "elastic", "concurrency": 3}),
    Sabotage(pin_is_kept_by_who_leaves, {**_PLANNED, "changes": ("rejoin",)}, 2),
    Sabotage(
        late_renewal_is_not_awaited,
        {**_RIVALS, "handler": "blocks", "concurrency": 3, "ack_wait": 1.0, "faults": (), **_CALM},
        1,
    ),
    Sabotage(
        thread_begins_what_was_sent_back,
        {**_PLANNED, "handler": "plain", "backlog": 5, "changes": ("rejoin",)},
    ),
    Sabotage(
        owner_without_a_pin_counts_for_nothing,
        {**_STEPPING, "layout": "interoperable", "faults": ("stall",)},
        3,
    ),
]
