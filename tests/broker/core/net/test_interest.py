"""Watching whether somebody listens on a subject."""

from __future__ import annotations

import random

from headrace.broker.core.net.output import Output
from headrace.broker.core.net.router import Router
from headrace.broker.core.net.subscription import Subscription
from headrace.broker.core.ports import Watch


class _Nobody:
    def overflow(self) -> None:
        raise AssertionError("nothing is written")


def subscription(pattern: bytes, queue: bytes = b"", client_id: int = 1) -> Subscription:
    output = Output(_Nobody(), [])
    return Subscription(client_id, output, pattern, queue, b"1", lambda _subscription: None)


def watch(router: Router, subject: bytes, queue: bytes = b"") -> tuple[Watch, list[bool]]:
    heard: list[bool] = []
    asked = Watch(subject, queue, heard.append)
    router.watch(asked)
    return asked, heard


def test_the_first_and_the_last_listener_are_told() -> None:
    router = Router(random.Random(1))
    asked, heard = watch(router, b"d.x")
    first, second = subscription(b"d.x"), subscription(b"d.x")
    router.subscribe(first)
    router.subscribe(second)
    assert heard == [True]
    assert asked.listened
    router.unsubscribe(first)
    assert heard == [True]
    router.unsubscribe(second)
    assert heard == [True, False]


def test_who_listens_already_is_known_at_once() -> None:
    router = Router(random.Random(1))
    router.subscribe(subscription(b"d"))
    asked, heard = watch(router, b"d")
    assert asked.listened
    assert not heard


def test_patterns_other_subjects_and_queue_groups_do_not_count() -> None:
    router = Router(random.Random(1))
    asked, heard = watch(router, b"d.x")
    for other in (b"d.*", b"d.>", b">", b"d", b"d.x.y"):
        router.subscribe(subscription(other))
    router.subscribe(subscription(b"d.x", b"workers"))
    assert not asked.listened
    assert not heard


def test_of_a_queue_group_only_that_group_counts() -> None:
    router = Router(random.Random(1))
    asked, heard = watch(router, b"d", b"workers")
    router.subscribe(subscription(b"d"))
    router.subscribe(subscription(b"d", b"others"))
    assert not heard
    member = subscription(b"d", b"workers")
    router.subscribe(member)
    router.unsubscribe(member)
    assert heard == [True, False]
    assert not asked.listened


def test_a_sink_listens_too() -> None:
    router = Router(random.Random(1))
    _, heard = watch(router, b"d")

    def sink(*_arguments: object) -> None:
        return

    router.add_sink(b"d", sink)
    router.remove_sink(b"d", sink)
    assert heard == [True, False]


def test_who_stops_watching_hears_nothing() -> None:
    router = Router(random.Random(1))
    asked, heard = watch(router, b"d")
    router.unwatch(asked)
    router.unwatch(asked)
    router.subscribe(subscription(b"d"))
    assert not heard


def test_a_message_for_a_queue_group_goes_to_a_member_that_keeps_up() -> None:
    router = Router(random.Random(1))
    slow, quick = subscription(b"d", b"q", 1), subscription(b"d", b"q", 2)
    slow.output.size = 1 << 30
    router.subscribe(slow)
    router.subscribe(quick)
    assert {router.resolve(b"d") for _ in range(20)} == {quick}
    quick.output.size = 1 << 30
    assert len({router.resolve(b"d") for _ in range(20)}) == 2


class Place:
    """Another router, where subjects have a prefix."""

    def __init__(self, router: Router) -> None:
        self.router = router

    def name_of(self, subject: bytes) -> bytes | None:
        return b"from." + subject if subject.startswith(b"d") else None

    def watch(self, watch: Watch) -> None:
        self.router.watch(watch)

    def unwatch(self, watch: Watch) -> None:
        self.router.unwatch(watch)


def test_who_imports_the_subject_counts_under_its_name_there() -> None:
    here, there = Router(random.Random(1)), Router(random.Random(1))
    here.watch_elsewhere([Place(there)])
    asked, heard = watch(here, b"d.x")
    _other, nothing = watch(here, b"e")
    foreign, own = subscription(b"from.d.x"), subscription(b"d.x")
    there.subscribe(foreign)
    here.subscribe(own)
    there.unsubscribe(foreign)
    assert heard == [True]
    here.unsubscribe(own)
    assert heard == [True, False]
    assert not nothing
    here.unwatch(asked)
    there.subscribe(foreign)
    assert heard == [True, False]


def test_a_place_that_comes_or_goes_is_told() -> None:
    here, there = Router(random.Random(1)), Router(random.Random(1))
    there.subscribe(subscription(b"from.d"))
    asked, heard = watch(here, b"d")
    here.watch_elsewhere([Place(there)])
    assert asked.listened
    here.watch_elsewhere([])
    assert heard == [True, False]
