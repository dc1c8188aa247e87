from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headrace.broker.core.net import router as router_module
from headrace.broker.core.net.router import Route, Router
from headrace.broker.core.net.subscription import GuardedSubscription, Subscription
from headrace.subjects import matches


class Wire:
    """Stands for an output: keeps the frames."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.size = self.payload_bytes = 0
        self.room = 1 << 40
        self.has_headers = True
        self.touched: list[Any] = []
        self.blocked = False

    def write_message(
        self, head: bytes, sid: bytes, tail: bytes, payload: bytes | None = None
    ) -> None:
        self.parts.append(head + sid + tail + (b"" if payload is None else payload + b"\r\n"))


def make_router() -> Router:
    return Router(random.Random(7))


def make_subscription(
    router: Router, pattern: bytes, sid: bytes = b"1", queue: bytes = b"", client_id: int = 5
) -> tuple[Subscription, Wire]:
    """One that the router does not know yet."""
    wire = Wire()
    end = router.unsubscribe
    return Subscription(client_id, wire, pattern, queue, sid, end), wire  # type: ignore[arg-type]


def subscribe(
    router: Router, pattern: bytes, sid: bytes = b"1", queue: bytes = b"", client_id: int = 5
) -> tuple[Subscription, Wire]:
    subscription, wire = make_subscription(router, pattern, sid, queue, client_id)
    router.subscribe(subscription)
    return subscription, wire


def test_a_message_reaches_plain_subscribers_by_name_and_by_wildcard() -> None:
    router = make_router()
    _, exact = subscribe(router, b"orders.new", b"1")
    _, star = subscribe(router, b"orders.*", b"2")
    _, rest = subscribe(router, b">", b"3")
    _, other = subscribe(router, b"orders.new.x", b"4")
    assert router.publish(b"orders.new", b"reply", b"", b"hello") == 3
    assert exact.parts == [b"MSG orders.new 1 reply 5\r\nhello\r\n"]
    assert star.parts == [b"MSG orders.new 2 reply 5\r\nhello\r\n"]
    assert rest.parts == [b"MSG orders.new 3 reply 5\r\nhello\r\n"]
    assert other.parts == []


def test_headers_make_an_hmsg_and_are_left_out_for_those_who_cannot_read_them() -> None:
    router = make_router()
    _, knows = subscribe(router, b"a", b"1")
    _, knows_not = subscribe(router, b"a", b"2")
    knows_not.has_headers = False
    router.publish(b"a", b"", b"NATS/1.0\r\nA: b\r\n\r\n", b"hi")
    assert knows.parts == [b"HMSG a 1 18 20\r\nNATS/1.0\r\nA: b\r\n\r\nhi\r\n"]
    assert knows_not.parts == [b"MSG a 2 2\r\nhi\r\n"]


def test_a_large_payload_is_the_same_message() -> None:
    router = make_router()
    _, wire = subscribe(router, b"a")
    payload = bytes(100_000)
    router.publish(b"a", b"", b"", payload)
    assert wire.parts == [b"MSG a 1 100000\r\n" + payload + b"\r\n"]


def test_one_member_of_each_queue_group_receives_and_all_get_their_turn() -> None:
    router = make_router()
    members = [subscribe(router, b"jobs", b"%d" % n, b"workers")[1] for n in range(3)]
    # The same queue name by another pattern is the same group.
    members.append(subscribe(router, b"*", b"9", b"workers")[1])
    _, auditor = subscribe(router, b"jobs", b"8", b"audit")
    for _ in range(400):
        assert router.publish(b"jobs", b"", b"", b"") == 2
    counts = [len(member.parts) for member in members]
    assert sum(counts) == 400
    assert min(counts) > 50
    assert len(auditor.parts) == 400


def test_a_publisher_without_echo_is_skipped_and_another_queue_member_takes_its_turn() -> None:
    router = make_router()
    _, own = subscribe(router, b"a", b"1", client_id=5)
    _, own_member = subscribe(router, b"a", b"2", b"q", client_id=5)
    _, member = subscribe(router, b"a", b"3", b"q", client_id=6)
    for _ in range(20):
        assert router.deliver(router.find(b"a"), b"a", b"", b"", b"", None, 5) == 1
    assert (len(own.parts), len(own_member.parts), len(member.parts)) == (0, 0, 20)


def test_sinks_take_messages_and_may_decline_them() -> None:
    router = make_router()
    taken: list[tuple[bytes, ...]] = []

    def takes(subject: bytes, reply: bytes, headers: bytes, payload: bytes, origin: object) -> None:
        taken.append((subject, reply, headers, payload))

    def declines(*args: object) -> bool:
        return False

    router.add_sink(b"$JS.API.>", takes)
    router.add_sink(b"$JS.API.NEXT.*", declines)
    assert router.publish(b"$JS.API.NEXT.C", b"r", b"", b"1") == 1
    assert taken == [(b"$JS.API.NEXT.C", b"r", b"", b"1")]
    router.remove_sink(b"$JS.API.>", takes)
    assert router.has_interest(b"$JS.API.NEXT.C")
    assert router.publish(b"$JS.API.NEXT.C", b"r", b"", b"1") == 0
    router.remove_sink(b"$JS.API.>", takes)  # not there any more: nothing happens
    assert not router.has_interest(b"$JS.API.INFO")


def test_only_sink_is_set_when_there_is_exactly_one_receiver_and_it_is_a_sink() -> None:
    router = make_router()

    def sink(*args: object) -> None: ...

    router.add_sink(b"flights.>", sink)
    assert router.find(b"flights.JFK.N1").only_sink is sink
    subscription, _ = subscribe(router, b"flights.JFK.*")
    assert router.find(b"flights.JFK.N1").only_sink is None
    router.unsubscribe(subscription)
    assert router.find(b"flights.JFK.N1").only_sink is sink


def test_a_subscription_that_has_had_its_messages_ends() -> None:
    router = make_router()
    subscription, wire = subscribe(router, b"a")
    subscription.messages_max = 2
    assert [router.publish(b"a", b"", b"", b"") for _ in range(4)] == [1, 1, 0, 0]
    assert len(wire.parts) == 2
    assert router.subscriptions == 0


def test_a_resolved_inbox_sends_with_a_subject_of_its_own() -> None:
    router = make_router()
    subscription, wire = subscribe(router, b"_INBOX.x.*")
    target = router.resolve(b"_INBOX.x.7")
    assert target is subscription
    target.send(b"orders.new", b"ack", b"", b"hi")
    assert wire.parts == [b"MSG orders.new 1 ack 2\r\nhi\r\n"]
    assert router.resolve(b"_INBOX.y.7") is None


def test_a_resolved_inbox_falls_silent_when_its_subscription_ends_within_the_batch() -> None:
    router = make_router()
    subscription, wire = subscribe(router, b"in")
    subscription.messages_max = 1
    subscription._on_exhausted = lambda ended: setattr(ended, "closed", True)
    target = router.resolve(b"in")
    assert target is not None
    target.send(b"a", b"", b"", b"1")
    target.send(b"a", b"", b"", b"2")
    assert wire.parts == [b"MSG a 1 1\r\n1\r\n"]


def test_an_inbox_with_several_receivers_resolves_to_all_of_them() -> None:
    router = make_router()
    heard: list[bytes] = []
    _, one = subscribe(router, b"in", b"1")
    _, two = subscribe(router, b"in", b"2")
    members = [subscribe(router, b"in", b"%d" % n, b"q")[1] for n in (3, 4)]
    router.add_sink(b"in", lambda subject, *rest: heard.append(subject))
    target = router.resolve(b"in")
    assert target is not None
    target.send(b"a", b"", b"", b"x")
    assert len(one.parts) == len(two.parts) == 1
    assert sum(len(member.parts) for member in members) == 1
    assert heard == [b"in"]
    assert not target.blocked
    two.blocked = True
    assert target.blocked


@given(
    st.lists(st.sampled_from([b"in.*", b"in.1", b"in.>", b"*.2", b"other"]), max_size=3),
    st.lists(st.sampled_from([b"in.1", b"in.2", b"in.3", b"in.", b"other", b"x.1"]), max_size=8),
    st.integers(-1, 3),
)
def test_publishing_many_is_publishing_each(
    some_patterns: list[bytes], replies: list[bytes], messages_max: int
) -> None:
    def heard(*, at_once: bool) -> list[list[bytes]]:
        router = make_router()
        wires = []
        for pattern in some_patterns:
            subscription, wire = subscribe(router, pattern)
            subscription.messages_max = messages_max or -1
            wires.append(wire)
        messages = [(reply, b"%d" % number) for number, reply in enumerate(replies)]
        if at_once:
            router.publish_many(messages)
        else:
            for reply, payload in messages:
                router.publish(reply, b"", b"", payload)
        return [wire.parts for wire in wires]

    assert heard(at_once=True) == heard(at_once=False)


def test_subjects_of_a_stream_are_remembered_one_by_one() -> None:
    router = make_router()
    router.add_sink(b"flights.>", lambda *args: None)
    for _ in range(2):
        for number in range(10):
            router.find(b"flights.JFK.N%d" % number)
    assert set(router.exact) == {b"flights.JFK.N%d" % number for number in range(10)}
    subscription, _ = subscribe(router, b"flights.JFK.N3")
    assert router.find(b"flights.JFK.N3").plain == (subscription,)


def test_unique_inboxes_leave_nothing_in_the_caches() -> None:
    router = make_router()
    subscribe(router, b"_INBOX.x.*")
    for number in range(1000):
        assert router.publish(b"_INBOX.x.%d" % number, b"", b"", b"") == 1
    assert router.exact == {}
    assert len(router._prefixes) == 1


def test_who_listens_to_some_acknowledgements_is_not_left_out() -> None:
    router = make_router()
    router.add_sink(b"$JS.ACK.>", lambda *args: None)
    assert router.acks() is not None
    _, wire = subscribe(router, b"$JS.ACK.*")
    assert router.acks() is None, "not all of them have the same receivers"
    assert router.publish(b"$JS.ACK.S", b"", b"", b"") == 2
    assert len(wire.parts) == 1


def test_acknowledgement_subjects_leave_nothing_in_the_caches() -> None:
    router = make_router()
    router.add_sink(b"$JS.ACK.>", lambda *args: None)
    for number in range(1000):
        assert router.publish(b"$JS.ACK.S.C.1.%d.%d.7.0" % (number, number), b"", b"", b"") == 1
    assert router.exact == {}
    assert router._prefixes == {}


def test_a_full_cache_takes_no_more_and_is_emptied_after_as_many_misses() -> None:
    router = make_router()
    router.add_sink(b"a.>", lambda *args: None)
    entries_max = router_module.PREFIX_ENTRIES_MAX
    for number in range(entries_max + 10):
        router.find(b"a.%d.x" % number)
    assert len(router._prefixes) == entries_max
    for number in range(entries_max):
        router.find(b"a.new%d.x" % number)
    assert 0 < len(router._prefixes) < entries_max


def test_the_caches_have_room_for_as_many_subjects_as_there_are_subscriptions() -> None:
    router = make_router()
    count = 2 * router_module.PREFIX_ENTRIES_MAX
    for number in range(count):
        subscribe(router, b"a.%d.*" % number)
    subjects = [b"a.%d.x" % number for number in range(count)]
    found = [router.find(subject) for subject in subjects]
    misses = router.misses
    assert [router.find(subject) for subject in subjects] == found
    assert router.misses == misses
    assert len(router._prefixes) == count
    assert not router._merged  # routes to one are made in less time than found


def test_routes_to_several_are_made_once_where_there_are_many() -> None:
    router = make_router()
    count = 2 * router_module.MERGED_ENTRIES_MAX
    for number in range(count):
        for _ in range(2):
            subscribe(router, b"a.%d.*" % number)
    routes = [router.find(b"a.%d.x" % number) for number in range(count)]
    assert len(router._merged) == count
    router._prefixes.clear()
    again = [router.find(b"a.%d.y" % number) for number in range(count)]
    assert all(one is other for one, other in zip(routes, again, strict=True))


@pytest.mark.parametrize("kind", [Subscription, GuardedSubscription])
def test_a_route_to_one_is_made_in_short_what_it_is_in_full(kind: type[Subscription]) -> None:
    output: Any = Wire()
    subscription = kind(1, output, b"a", b"", b"1", lambda ended: None)
    short, full = Route.to_one(subscription), Route((subscription,))
    assert short.takes_runs == full.takes_runs == (kind is Subscription)
    for name in Route.__slots__:
        assert getattr(short, name) == getattr(full, name), name


def test_a_literal_below_a_prefix_that_had_none_is_found_when_it_comes_and_when_it_goes() -> None:
    router = make_router()
    star, _ = subscribe(router, b"a.*.*")
    for number in range(3):
        assert router.find(b"a.b.%d" % number).plain == (star,)
    deep, _ = subscribe(router, b"a.b.1.c")
    assert router.find(b"a.b.1").plain == (star,)
    assert set(router.find(b"a.b.1.c").plain) == {deep}
    literal, _ = subscribe(router, b"a.b.1")
    assert set(router.find(b"a.b.1").plain) == {star, literal}
    assert router.find(b"a.b.2").plain == (star,)
    router.unsubscribe(literal)
    assert router.find(b"a.b.1").plain == (star,)


def test_a_literal_subscription_beside_a_wildcard_is_not_hidden_by_the_prefix_cache() -> None:
    router = make_router()
    _, star = subscribe(router, b"a.*", b"1")
    router.publish(b"a.x", b"", b"", b"")
    literal, wire = subscribe(router, b"a.y", b"2")
    assert router.publish(b"a.y", b"", b"", b"") == 2
    router.unsubscribe(literal)
    assert router.publish(b"a.y", b"", b"", b"") == 1
    assert (len(star.parts), len(wire.parts)) == (3, 1)


def test_literals_that_come_and_go_together_drop_what_is_cached_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    router = make_router()

    def wide(*message: object) -> None: ...
    def narrow(*message: object) -> None: ...

    router.add_sink(b"a.*", wide)
    router.add_sink(b"b.1", wide)
    some = [b"a.1", b"a.2", b"b.1"]
    before = [set(router.find(subject).sinks) for subject in some]
    assert router.exact
    with monkeypatch.context() as alone:
        alone.delattr(Router, "_changed")  # one by one is another way
        router.add_sinks(some, narrow)
    assert [set(router.find(subject).sinks) for subject in some] == [{wide, narrow}] * 3
    assert set(router.find(b"a.3").sinks) == {wide}
    with monkeypatch.context() as alone:
        alone.delattr(Router, "_changed")
        router.remove_sinks(some, narrow)
    assert [set(router.find(subject).sinks) for subject in some] == before == [{wide}] * 3


def test_those_who_subscribe_to_the_same_share_its_name() -> None:
    router = make_router()
    first, _ = subscribe(router, b"a.%d" % 1000, b"1")
    second, _ = subscribe(router, b"a.%d" % 1000, b"2")
    assert second.pattern is first.pattern


def test_malformed_subjects_reach_nobody_even_when_their_prefix_is_known() -> None:
    router = make_router()
    subscribe(router, b">")
    subscribe(router, b"a.*")
    router.find(b"a.b")
    router.find(b"b")
    for subject in (b"a.", b".a", b"a..b", b"", b"."):
        assert not router.has_interest(subject)


TOKENS = [b"a", b"b", b"c", b"*", b">", b"$JS", b"ACK"]
subjects = st.lists(
    st.sampled_from([b"a", b"b", b"c", b"$JS", b"ACK"]), min_size=1, max_size=4
).map(b".".join)


@st.composite
def patterns(draw: st.DrawFn) -> bytes:
    tokens = draw(st.lists(st.sampled_from([b"a", b"b", b"c", b"*"]), max_size=3))
    last = draw(st.sampled_from([b"a", b"b", b"*", b">"]))
    return b".".join([*tokens, last])


class RouterAgainstAList(RuleBasedStateMachine):
    """Whatever is added, removed and looked up, in any order: the caches never show."""

    def __init__(self) -> None:
        super().__init__()
        self.router = make_router()
        self.present: list[Subscription] = []
        self.next_sid = 0

    @rule(pattern=patterns(), queue=st.sampled_from([b"", b"", b"q", b"p"]))
    def add(self, pattern: bytes, queue: bytes) -> None:
        self.next_sid += 1
        subscription, _ = subscribe(self.router, pattern, b"%d" % self.next_sid, queue)
        self.present.append(subscription)

    @rule(some=st.lists(patterns(), max_size=6), queue=st.sampled_from([b"", b"", b"q"]))
    def add_together(self, some: list[bytes], queue: bytes) -> None:
        made = []
        for pattern in some:
            self.next_sid += 1
            made.append(make_subscription(self.router, pattern, b"%d" % self.next_sid, queue)[0])
        self.router.subscribe_all(made)
        self.present += made

    @precondition(lambda self: self.present)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.present) - 1))
        self.router.unsubscribe(self.present.pop(index))

    @precondition(lambda self: self.present)
    @rule(data=st.data())
    def remove_together(self, data: st.DataObject) -> None:
        gone = data.draw(st.lists(st.sampled_from(self.present), unique=True))
        if data.draw(st.booleans()):
            gone.sort(
                key=lambda subscription: subscription.pattern
            )  # neighbours have a way of their own
        self.router.unsubscribe_all(gone)
        self.present = [subscription for subscription in self.present if subscription not in gone]

    @rule(subject=subjects)
    def look_up(self, subject: bytes) -> None:
        route = self.router.find(subject)
        matching = [s for s in self.present if matches(s.pattern, subject)]
        assert set(route.plain) == {s for s in matching if not s.queue}
        groups: dict[bytes, set[Subscription]] = {}
        for subscription in matching:
            if subscription.queue:
                groups.setdefault(subscription.queue, set()).add(subscription)
        assert {frozenset(group) for group in route.groups} == set(map(frozenset, groups.values()))
        assert len(route.plain) == len(set(route.plain))

    @invariant()
    def counted(self) -> None:
        assert self.router.subscriptions == len(self.present)

    @invariant()
    def nothing_is_left_of_what_is_gone(self) -> None:
        if not self.present:
            assert self.router._trie.root.is_bare()

    @rule(some=st.lists(patterns(), max_size=6, unique=True), data=st.data())
    def sinks_come_and_go(self, some: list[bytes], data: st.DataObject) -> None:
        """They come together, and some of them go together; those that are not there do not matter."""
        heard: list[bytes] = []

        def sink(subject: bytes, *rest: object) -> None:
            heard.append(subject)

        self.router.add_sinks(some, sink, lambda publishes, origin: publishes)
        gone = data.draw(st.lists(patterns() | st.sampled_from(some or [b"a"]), max_size=6))
        self.router.remove_sinks(gone, sink)
        left = set(some).difference(gone)
        for subject in data.draw(st.lists(subjects, max_size=4)):
            expected = sum(matches(pattern, subject) for pattern in left)
            assert self.router.find(subject).sinks.count(sink) == expected
        assert (self.router.many_of(sink) is not None) == bool(left)
        self.router.remove_sinks(sorted(left), sink)
        assert self.router.many_of(sink) is None


TestRouterAgainstAList = RouterAgainstAList.TestCase
TestRouterAgainstAList.settings = settings(max_examples=settings().max_examples // 2)


@given(st.lists(patterns(), max_size=8), st.lists(subjects, max_size=8))
def test_published_counts_equal_matching_patterns(
    some_patterns: list[bytes], some_subjects: list[bytes]
) -> None:
    router = make_router()
    for pattern in some_patterns:
        subscribe(router, pattern)
    for subject in [*some_subjects, *some_subjects]:
        expected = sum(matches(pattern, subject) for pattern in some_patterns)
        assert router.publish(subject, b"", b"", b"") == expected
