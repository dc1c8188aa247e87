"""The time of day is set, by a second or by a year: what goes by it, what does not, and how it heals.

Each cell of the table in ``docs/limits.md`` is played here, on the virtual clock: a third of all things and
jumps by each test, and another third by the next; all by each in ``make test-all``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise, product
from typing import Any, Final, NamedTuple

import pytest

from headrace.api.times import format_time
from headrace.broker.core.jetstream import JetStreamOptions
from headrace.broker.core.options import AssetLimits
from jetstream_world import Client, Inbox, World
from portions import some

SECOND: Final = 1_000_000_000
LASTS: Final = 100  # seconds: so long is every age, wait and window here
JUMPS: Final = {
    "a second ahead": 1,
    "a second back": -1,
    "an hour ahead": 3600,
    "an hour back": -3600,
    "a day ahead": 86_400,
    "a day back": -86_400,
    "a year ahead": 365 * 86_400,
    "a year back": -365 * 86_400,
}


class Thing(NamedTuple):
    """Something that takes its time: how it begins, and how to see that its time is over."""

    by: str
    """``steady``: a duration, by the steady clock. ``age``: of a message. ``day``: by the time of day."""
    begin: Callable[[Client], object]
    is_over: Callable[[Client, Any], bool]


def messages(client: Client) -> int:
    found: int = client.api("STREAM.INFO.S")["state"]["messages"]
    return found


def aged(client: Client) -> None:
    client.stream(max_age=LASTS * SECOND, duplicate_window=SECOND)
    client.put(b"s.x")


def living(client: Client) -> None:
    client.stream(allow_msg_ttl=True)
    client.put(b"s.x", Nats_TTL=str(LASTS))


def named(client: Client) -> None:
    client.stream(duplicate_window=LASTS * SECOND)
    client.put(b"s.x", Nats_Msg_Id="one")


def delivered(client: Client) -> Inbox:
    client.stream()
    client.consumer(ack_wait=LASTS * SECOND)
    client.put(b"s.x")
    assert len(client.pull(b"1").take()) == 1
    return client.pull({"batch": 1, "expires": 10**15})


def refused(client: Client) -> Inbox:
    client.stream()
    client.consumer(ack_wait=LASTS * SECOND)
    client.put(b"s.x")
    client.ack(client.pull(b"1").take()[0], b'-NAK {"delay":%d}' % (LASTS * SECOND))
    return client.pull({"batch": 1, "expires": 10**15})


def pinned(client: Client) -> Inbox:
    client.stream()
    client.consumer(
        priority_groups=["g"],
        priority_policy="pinned_client",
        priority_timeout=LASTS * SECOND,
        ack_wait=SECOND,
    )
    client.put(b"s.x")
    client.ack(client.pull({"batch": 1, "group": "g"}).take()[0])
    other = client.pull({"batch": 1, "group": "g", "expires": 10**15})
    client.put(b"s.x")
    return other


def unused(client: Client) -> None:
    client.stream()
    config = {"name": "E", "inactive_threshold": LASTS * SECOND, "ack_policy": "explicit"}
    client.api("CONSUMER.CREATE.S.E", {"stream_name": "S", "config": config})


def is_gone(client: Client, _: object) -> bool:
    return "E" not in (client.api("CONSUMER.NAMES.S").get("consumers") or [])


def pulling(client: Client) -> Inbox:
    client.stream()
    client.consumer()
    return client.pull({"batch": 1, "expires": LASTS * SECOND})


def expecting(client: Client) -> None:
    client.stream()
    client.put(b"s.x")


def check_expectations(client: Client) -> None:
    last = client.api("STREAM.INFO.S")["state"]["last_seq"]
    headers = {"Nats_Expected_Last_Sequence": str(last)}
    assert client.put(b"s.x", **headers) == {"stream": "S", "seq": last + 1}
    assert "error" in client.put(b"s.x", **headers)
    assert "error" in client.put(b"s.x", Nats_Expected_Last_Subject_Sequence="1")


def batch(client: Client) -> None:
    client.stream(allow_atomic=True)
    client.publish(b"s.x", b"x", Nats_Batch_Id="b", Nats_Batch_Sequence="1")


def batch_is_gone(client: Client, _: object) -> bool:
    return not client.world.streams["S"].publishes.atomic._open


def paused(client: Client) -> None:
    client.stream()
    client.consumer()
    until = format_time(client.world.clock.now_ns() + LASTS * SECOND)
    client.api("CONSUMER.PAUSE.S.C", {"pause_until": until})


def planned(client: Client) -> None:
    client.stream(allow_msg_schedules=True)
    at = "@at " + format_time(client.world.clock.now_ns() + LASTS * SECOND)
    client.put(b"s.plan", b"work", Nats_Schedule=at, Nats_Schedule_Target="s.out")


def repeated(client: Client) -> None:
    client.stream(allow_msg_schedules=True)
    every = f"@every {LASTS}s"
    client.put(b"s.plan", b"work", Nats_Schedule=every, Nats_Schedule_Target="s.out")


def fired(client: Client, _: object) -> bool:
    info = client.api("STREAM.INFO.S", {"subjects_filter": "s.out"})["state"]
    return "s.out" in (info.get("subjects") or {})


def heard(_: Client, inbox: Inbox) -> bool:
    return bool(inbox.messages)


THINGS: Final = {
    "max_age": Thing("age", aged, lambda client, _: messages(client) == 0),
    "the TTL of a message": Thing("age", living, lambda client, _: messages(client) == 0),
    "the duplicate window": Thing(
        "steady", named, lambda client, _: "duplicate" not in client.put(b"s.x", Nats_Msg_Id="one")
    ),
    "ack_wait": Thing("steady", delivered, heard),
    "the delay of a refusal": Thing("steady", refused, heard),
    "priority_timeout, a pin": Thing("steady", pinned, heard),
    "inactive_threshold": Thing("steady", unused, is_gone),
    "the time of a pull": Thing("steady", pulling, heard),
    "the time of an atomic batch": Thing("steady", batch, batch_is_gone),
    "a pause": Thing("day", paused, lambda client, _: not client.info().get("paused")),
    "a schedule @at": Thing("day", planned, fired),
    "a schedule @every": Thing("day", repeated, fired),
}
IN_MEMORY: Final = {"the time of a pull", "the time of an atomic batch", "priority_timeout, a pin"}


def began(world: World, thing: Thing) -> tuple[Client, Any]:
    client = world.client()
    return client, thing.begin(client)


def took(world: World, client: Client, thing: Thing, state: Any, most: float) -> float:
    """Seconds of steady time until it is over, looking every half second; more than ``most`` if it is not."""
    begin_ns = world.clock.monotonic_ns()
    while not thing.is_over(client, state):
        passed = (world.clock.monotonic_ns() - begin_ns) / SECOND
        if passed > most:
            return most + 1
        world.advance(0.5)
    return (world.clock.monotonic_ns() - begin_ns) / SECOND


def set_clock(world: World, seconds: float) -> None:
    """Set the time of day, and let it last until it is followed."""
    world.clock.jump(seconds)
    for more in (
        2,
        61,
    ):  # of two looks within a second the second is not held against the steady clock
        world.hub.clock.now_ns()
        world.advance(more)
    assert world.hub.clock.now_ns() == world.clock.now_ns()


@pytest.fixture(params=JUMPS, ids=str)
def jump(request: pytest.FixtureRequest) -> float:
    return JUMPS[request.param]


def cells(names: Iterable[str], beginning: int) -> pytest.MarkDecorator:
    """What goes by a time, and how far the clock jumps."""
    pairs = some(product(names, JUMPS), 3, beginning)
    return pytest.mark.parametrize(("name", "jump"), pairs, indirect=["jump"])


def world_of() -> World:
    return World(options=JetStreamOptions(assets=AssetLimits(batch_idle=LASTS)))


@cells(THINGS, 0)
def test_a_jump_for_a_moment_changes_nothing(name: str, jump: float) -> None:
    thing, world = THINGS[name], world_of()
    client, state = began(world, thing)
    world.advance(10)
    world.clock.jump(jump)
    for _ in range(60):
        assert not thing.is_over(client, state)
        world.advance(0.5)
    world.clock.jump(-jump)
    assert LASTS - 1 <= 40 + took(world, client, thing, state, 80) <= LASTS + 2


@cells(THINGS, 1)
def test_a_jump_for_good_meets_what_goes_by_the_time_of_day(name: str, jump: float) -> None:
    """It is believed after 70 of the 100 seconds."""
    thing, world = THINGS[name], world_of()
    client, state = began(world, thing)
    world.advance(10)
    world.clock.jump(jump)
    seconds = 10 + took(world, client, thing, state, 3 * LASTS)
    repeats = name == "a schedule @every"
    if thing.by == "steady" or abs(jump) == 1:
        assert LASTS - 2 <= seconds <= LASTS + 3
    elif jump > 0:
        assert 69 <= seconds <= LASTS + 3  # at once when it is noticed that the time is over
    elif thing.by == "age":
        assert LASTS - 1 <= seconds <= 2 * LASTS + 3
    elif repeats:
        assert LASTS - 1 <= seconds <= 2 * LASTS + 65
    else:
        assert seconds > 3 * LASTS  # it is not that time of day yet


@cells(THINGS, 2)
def test_a_clock_that_was_put_right_does_no_harm_any_more(name: str, jump: float) -> None:
    """Wrong long enough to be believed, with messages stored meanwhile, and right again."""
    thing, world = THINGS[name], world_of()
    first = world.client()
    first.stream("OTHER")
    set_clock(world, jump)
    client, state = began(world, thing)
    first.put(b"other.x")
    client.put(b"s.early")
    if thing.by == "day":
        client.api("STREAM.DELETE.S")
    set_clock(world, -jump)
    if thing.by == "day":
        client, state = began(world, thing)
        assert LASTS - 2 <= took(world, client, thing, state, 3 * LASTS) <= LASTS + 3
        return
    if thing.by == "age":
        client.put(b"s.late")
        seconds = took(world, client, Thing("age", aged, _late_is_gone(name)), state, 3 * LASTS)
        ahead = jump > 1 and name == "max_age"
        assert seconds <= (2 * LASTS + 3 if ahead else LASTS + 3) or name != "max_age"
        assert name != "max_age" or seconds >= LASTS - 2
        return
    assert 61 + took(world, client, thing, state, 3 * LASTS) <= LASTS + 3


def _late_is_gone(name: str) -> Callable[[Client, Any], bool]:
    return lambda client, _: messages(client) == 0 or name != "max_age"


@cells([name for name in THINGS if name not in IN_MEMORY], 0)
def test_a_clock_that_is_another_after_a_restart(name: str, jump: float) -> None:
    thing, world = THINGS[name], world_of()
    client, _ = began(world, thing)
    world.advance(10)
    world.clock.jump(jump)
    world.restart()
    client = world.client()
    pulls = thing.is_over is heard
    state = client.pull({"batch": 1, "expires": 10**15}) if pulls else None
    seconds = 10 + took(world, client, thing, state, 3 * LASTS)
    if name in ("inactive_threshold", "a schedule @every"):
        assert LASTS - 2 <= seconds <= LASTS + 13  # it may begin anew
    elif abs(jump) == 1:
        assert LASTS - 2 <= seconds <= LASTS + 3
    elif jump > 0:
        assert seconds <= 13
    elif thing.by == "age":
        assert LASTS - 2 <= seconds <= 2 * LASTS + 13
    elif thing.by == "steady":
        assert LASTS - 2 <= seconds <= LASTS + 13
    else:
        assert seconds > 3 * LASTS


def test_what_a_publisher_expects_has_no_time(jump: float) -> None:
    world = World()
    client = world.client()
    expecting(client)
    for seconds in (0, jump, -jump):
        set_clock(world, seconds)
        check_expectations(client)
    world.clock.jump(jump)
    world.restart()
    check_expectations(world.client())


# -- what the table does not have


def stamps(client: Client) -> list[int]:
    (stream,) = client.world.streams.values()
    found = stream.store.read(1, None, 10_000, 1 << 30, stream.store.last_seq)
    return [message.timestamp_ns for message in found]


def test_times_within_a_stream_never_go_back_and_catch_up(jump: float) -> None:
    world = World()
    client = world.client()
    client.stream(subjects=["s.>"])
    for seconds in (0, jump, -jump, jump / 2, -jump / 2):
        set_clock(world, seconds)
        for _ in range(5):
            client.put(b"s.x")
            world.advance(1)
        if seconds == jump / 2:
            world.restart()
            client = world.client()
    found = stamps(client)
    assert all(one <= other for one, other in pairwise(found))
    if 1 < abs(jump) <= 3600:
        world.advance(2 * abs(jump) + 300)
        client = world.client()  # the other one has answered no PING
        client.put(b"s.x")
        assert stamps(client)[-1] == world.clock.now_ns()


def test_messages_age_in_the_order_they_came_while_the_stream_is_ahead() -> None:
    """A day ahead for ten minutes, then right, and then a restart: three seconds stay a few seconds."""
    world = World()
    client = world.client()
    client.stream(max_age=3 * SECOND, duplicate_window=SECOND)
    set_clock(world, 86_400)
    client.put(b"s.x")
    world.advance(600)
    client = world.client()  # the other one has answered no PING
    world.clock.jump(-86_400)
    for second in range(200):
        if second in (65, 130):
            world.restart()
            client = world.client()
        client.put(b"s.x")
        world.advance(1)
        if second > 5:
            assert 2 <= messages(client) <= 8
    assert stamps(client)[-1] > world.clock.now_ns() + 80_000 * SECOND
    world.advance(8)
    assert messages(client) == 0
    client.put(b"s.x")
    assert stamps(client) == [world.clock.now_ns()]


def test_old_messages_of_a_stream_that_is_ahead_go_by_the_clock() -> None:
    """What was stored before the clock was wrong does not leave a day early."""
    world = World()
    client = world.client()
    client.stream(max_age=2 * 86_400 * SECOND, subjects=["s.>"], allow_msg_ttl=True)
    client.put(b"s.old")
    client.put(b"s.old", Nats_TTL=str(2 * 86_400))
    set_clock(world, 86_400)
    client.put(b"s.wrong", Nats_TTL="1000")
    set_clock(world, -86_400)
    world.advance(86_400)
    assert messages(world.client()) == 2  # the other one, after 2000 seconds
    world.advance(86_400 - 400)
    assert messages(world.client()) == 2
    world.advance(800)
    assert messages(world.client()) == 0


def test_a_stream_that_is_emptied_goes_by_the_clock_again() -> None:
    world = World()
    client = world.client()
    client.stream(subjects=["s.>"])
    set_clock(world, 365 * 86_400)
    client.put(b"s.x")
    set_clock(world, -365 * 86_400)
    client.put(b"s.x")
    assert stamps(client)[-1] > world.clock.now_ns()
    client.api("STREAM.PURGE.S")
    client.put(b"s.x")
    assert stamps(client) == [world.clock.now_ns()]


def test_a_repeating_schedule_goes_on_when_the_clock_was_put_right() -> None:
    world = World()
    client = world.client()
    client.stream(allow_msg_schedules=True)
    set_clock(world, 86_400)
    client.put(b"s.plan", b"", Nats_Schedule="@every 5s", Nats_Schedule_Target="s.out")
    world.advance(11)
    set_clock(world, -86_400)
    world.advance(61)
    before = messages(client)
    world.advance(50)
    assert 8 <= messages(client) - before <= 11
