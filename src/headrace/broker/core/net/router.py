"""Who receives a message: the subscriptions and sinks of the broker, and the caches before them.

A subject is looked up in three steps, each an order of magnitude dearer than the one before:

1. ``exact``: the subject itself. Two kinds of subject are kept out, because each is used once: those
   for which step 2 has the answer (unless it is a stream's), and acknowledgements (``$JS.ACK.…``),
   which have one entry for all of them, and walk if somebody listens to some of them only.
2. ``prefixes``: all tokens but the last. If no pattern names the last token literally, every subject
   with this prefix has the same receivers; so a request's unique inbox, ``_INBOX.x.<unique>``, costs
   one lookup and leaves nothing behind. An entry keeps the literal tokens that do exist below the
   prefix (the live dictionaries of the trie) and stands aside for those.
3. the trie.

Invalidation: a pattern without wildcards changes only its own subject and its prefix; one with
wildcards clears both caches. Both are bounded, by the number of subscriptions if these are many: a full
cache takes no more, and is emptied after as many misses as it has entries, so traffic of ever-new subjects
costs little more than the walk, and a working set that moves is found again.

A message for thousands of subscriptions is delivered in parts (``Broadcast``): a turn may end between two.
What the broker itself publishes, replies to one client by the thousand, goes as blocks (``publish_many``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from ....pattern_tree import are_literal
from ....subjects import are_below
from ....wire.frames import Frame
from ..budget import LOOK_AT_ONCE
from ..ports import (
    Elsewhere,
    ManySink,
    Origin,
    Randomness,
    RunSink,
    ShortWay,
    Sink,
    Target,
    Watch,
)
from .output import head_of, tail_of
from .subscription import FanOut, GuardedSubscription, SinkTarget, Subscription
from .trie import Leaf, Place, Trie

if TYPE_CHECKING:
    from .output import Output


BROADCAST: Final = b"*"
"""The first of a frame no parser makes: ``(BROADCAST, Broadcast)``, a message that is handed over in part."""

_PART_RECEIVERS: Final = 1024
RECEIVERS_PER_UNIT: Final = 2
EXACT_ENTRIES_MAX: Final = 32_768
PREFIX_ENTRIES_MAX: Final = 4_096
MERGED_ENTRIES_MAX: Final = 4_096
SCALED_MAX: Final = 131_072  # of each, where there are as many subscriptions
SINK_UNITS: Final = 2
_ACK_PREFIX: Final = b"$JS.ACK."
_ACK_STARTS: Final = frozenset((b"$JS", b"*", b">"))  # what a pattern that matches them begins with


def _parts_of(route: Route) -> tuple[Route, ...]:
    """Split a route: sinks, queue groups and the first subscriptions, then the other subscriptions."""
    size, plain = _PART_RECEIVERS, route.plain
    kind = type(route)
    rest = [kind(plain[at : at + size]) for at in range(size, len(plain), size)]
    return (kind(plain[:size], route.groups, route.sinks), *rest)


class Broadcast:
    """The rest of one publish. Later parts skip subscriptions that have ended since the first."""

    def __init__(
        self, router: Router, route: Route, publish: Frame, origin: Origin, skip_client: int
    ) -> None:
        self._deliver = router.deliver
        self._parts = iter(route.parts)
        self._message = publish[1:]
        self._origin, self._skip_client = origin, skip_client
        self._has_begun = False

    def step(self) -> int:
        """Deliver to one more part. Returns its weight in a turn, 0 when everybody has the message."""
        part = next(self._parts, None)
        if part is None:
            return 0
        if self._has_begun and any([s.closed for s in part.plain]):  # noqa: C419 - quicker as a list
            part = type(part)(tuple([s for s in part.plain if not s.closed]))
        self._has_begun = True
        subject, reply, headers, payload = self._message
        self._deliver(part, subject, reply, headers, payload, self._origin, self._skip_client)
        return part.weight


class Route:
    """The receivers of one subject: plain subscriptions, queue groups by member list, sinks."""

    __slots__ = (
        "_takes_runs",
        "groups",
        "guarded",
        "only_sink",
        "parts",
        "plain",
        "sinks",
        "weight",
    )

    def __init__(
        self,
        plain: tuple[Subscription, ...] = (),
        groups: tuple[tuple[Subscription, ...], ...] = (),
        sinks: tuple[Sink, ...] = (),
        sinks_weight: int = 0,
    ) -> None:
        self.plain = plain
        self.groups = groups
        self.sinks = sinks
        self.guarded = any(  # permissions are to be asked about each message
            isinstance(member, GuardedSubscription)
            for members in (plain, *groups)
            for member in members
        )
        self.weight = 1 + (len(plain) + len(groups)) // RECEIVERS_PER_UNIT + sinks_weight
        """What a message on it counts in a turn; see ``budget``."""
        self.parts = _parts_of(self) if len(plain) > 2 * _PART_RECEIVERS else ()
        """How it is divided, if it has too many receivers for one go."""
        self._takes_runs: bool | None = None
        # The commonest route by far, a stream's, is told apart with one look.
        self.only_sink = sinks[0] if len(sinks) == 1 and not plain and not groups else None

    @classmethod
    def to_one(cls, subscription: Subscription) -> Route:
        """Make the route to one plain subscription, of which there may be a hundred thousand."""
        route = cls.__new__(cls)
        route.plain, route.groups, route.sinks, route.parts = (subscription,), (), (), ()
        route.guarded = isinstance(subscription, GuardedSubscription)
        route.weight, route.only_sink, route._takes_runs = 1, None, None
        return route

    @property
    def takes_runs(self) -> bool:
        """Whether neighbouring messages may be delivered as a block to each receiver; see ``publishing``."""
        if self._takes_runs is None:  # most routes are never asked
            self._takes_runs = not (self.sinks or self.guarded or self.parts) and _are_apart(
                self.plain, self.groups
            )
        return self._takes_runs


def _are_apart(
    plain: tuple[Subscription, ...], groups: tuple[tuple[Subscription, ...], ...]
) -> bool:
    """Whether there are receivers, each with an output of its own: the order in one is that of messages."""
    receivers = [*plain, *chain.from_iterable(groups)]
    return 0 < len(receivers) == len({id(receiver.output) for receiver in receivers})


NOBODY: Final = Route()


def _sole_receiver(route: Route) -> Subscription | None:
    """The one subscription of a route that goes to nobody else, if its messages are not counted."""
    if len(route.plain) != 1 or route.groups or route.sinks:
        return None
    subscription = route.plain[0]
    return subscription if subscription.messages_max < 0 else None


class InterestWatches:
    """The watches of one router, by subject; false while there are none."""

    def __init__(self) -> None:
        self._by_subject: dict[bytes, dict[Watch, None]] = {}
        self._elsewhere: list[Elsewhere] = []

    def ask_elsewhere(self, places: Iterable[Elsewhere]) -> None:
        """The places where the subjects of this router are known, too, from now on."""
        self._elsewhere = list(places)
        for watches in list(self._by_subject.values()):
            for watch in list(watches):
                if watch.ask_elsewhere(self._elsewhere):
                    watch.changed(watch.listened)

    def __bool__(self) -> bool:
        return bool(self._by_subject)

    def add(self, watch: Watch, queues: Callable[[bytes], object]) -> None:
        """Answer a watch from now on; ``queues(queue)`` is true if somebody listens there now."""
        watch.answer(bool(queues(watch.queue)))
        watch.ask_elsewhere(self._elsewhere)
        self._by_subject.setdefault(watch.subject, {})[watch] = None

    def remove(self, watch: Watch) -> None:
        """Answer a watch no more; nothing happens when it is not there."""
        watches = self._by_subject.get(watch.subject)
        if watches is not None:
            watches.pop(watch, None)
            watch.ask_elsewhere(())
            if not watches:
                del self._by_subject[watch.subject]

    def tell(self, subject: bytes, queues: Callable[[bytes], object]) -> None:
        """Subscriptions of ``subject`` changed: tell who is concerned."""
        for watch in list(self._by_subject.get(subject, ())):
            if watch.answer(bool(queues(watch.queue))):
                watch.changed(watch.listened)


def publish_many(router: Router, messages: Sequence[tuple[bytes, bytes]]) -> None:
    """Deliver messages without headers and replies: their subjects and payloads, in order."""
    if _published_as_one(router, messages):
        return
    same: bytes | None = None
    prefix: bytes | None = None
    subscription: Subscription | None = None
    careful: GuardedSubscription | None = None  # the sole receiver, if only by its `send`
    counted: Output[Any] | None = None  # has yet to hear of `nbytes` more payload
    nbytes = 0
    for subject, payload in messages:
        if subject != same:
            same = subject
            head, _dot, last = subject.rpartition(b".")
            if head != prefix or not last:
                prefix = head if last else None
                subscription = router.sole_receiver_below(head) if last else None
                if subscription is None:
                    prefix = None
                    subscription = _sole_receiver(router.find(subject))
                careful = None
                if isinstance(subscription, GuardedSubscription):
                    subscription, careful = None, subscription
        if subscription is None:
            if careful is not None:
                careful.send(subject, b"", b"", payload)
                continue
            router.publish(subject, b"", b"", payload)
            same = prefix = None  # a sink may have changed who is there
            continue
        # Subscription.send, written out; the attributes that can wait are told once.
        size = len(payload)
        frame = b"MSG %b%b%d\r\n%b\r\n" % (subject, subscription.sid, size, payload)
        output = subscription.output
        if output is not counted:
            if counted is not None:
                counted.payload_bytes += nbytes
            counted, nbytes = output, 0
        nbytes += size
        parts = output.parts
        if not parts:
            output.touched.append(output)
        parts.append(frame)
        output.size = waiting = output.size + len(frame)
        subscription.delivered += 1
        if waiting > output.room:
            output.payload_bytes += nbytes
            counted = None
            output.session.overflow()
            same = prefix = None
    if counted is not None:
        counted.payload_bytes += nbytes


def _published_as_one(router: Router, messages: Sequence[tuple[bytes, bytes]]) -> bool:
    """Deliver all of them in one call, if they are for one inbox whose owner accepts batches."""
    head = messages[0][0].rpartition(b".")[0] if len(messages) > 1 else b""
    subscription = router.sole_receiver_below(head)
    take = None if subscription is None else subscription.send_payloads
    if take is None:
        return False
    if not are_below(head, [subject for subject, _ in messages]):
        return False
    take(messages)
    return True


Receiver = Subscription | Sink
_Literals = dict[bytes, Place[Receiver]]


class Router:
    """Implements the ``Bus`` port, and routes what sessions publish."""

    def __init__(self, random: Randomness) -> None:
        self.random_bits = random.getrandbits
        self._trie: Trie[Receiver] = Trie()
        self._prefixes: dict[bytes, tuple[Route, tuple[_Literals, ...]]] = {}
        self._merged: dict[tuple[Leaf[Receiver], ...], Route] = {}
        self._acks: Route | None = None
        self.short_way: ShortWay | None = None
        self._many: dict[Sink, tuple[ManySink, int]] = {}  # with how many patterns the sink has
        self._runs: dict[Sink, RunSink] = {}
        self._heavy: set[Sink] = set()
        self._refused = {"exact": 0, "prefixes": 0}
        self._on_unblocked: list[Callable[[], None]] = []
        self._watches = InterestWatches()
        self._leading_elsewhere: frozenset[object] = frozenset()
        self.subscriptions = 0
        self.added = 0
        """Subscriptions there have ever been; those that went are ``added - subscriptions``."""
        self.misses = 0
        """Subjects that no cache knew."""
        self.answers_others = False  # where replies do, which are then not a client's to name
        self.imported_from: list[Router] = []
        """Of the accounts whose streams are imported here: they may wait for outputs of this one."""
        self.exact: dict[bytes, Route] = {}
        """Step 1, for callers in a hurry: ``exact.get(subject) or find_uncached(subject)``."""

    # Registration

    def subscribe(self, subscription: Subscription) -> None:
        """Add a subscription; its pattern is valid."""
        self.subscriptions += 1
        self.added += 1
        leaf = self._trie.add(subscription.pattern, subscription.queue, subscription)
        subscription.pattern = leaf.pattern  # the same object for all who subscribe to it
        self._changed(leaf.pattern, leaf)

    def subscribe_all(self, subscriptions: Sequence[Subscription]) -> None:
        """``subscribe`` for several; in little time for thousands."""
        add, changes = self._trie.add, []
        for subscription in subscriptions:
            leaf = add(subscription.pattern, subscription.queue, subscription)
            subscription.pattern = leaf.pattern
            changes.append((leaf.pattern, leaf))
        self.subscriptions += len(changes)
        self.added += len(changes)
        self._all_changed(changes)

    def unsubscribe(self, subscription: Subscription) -> None:
        """Remove a subscription; nothing more is delivered to it."""
        leaf = self._trie.remove(subscription.pattern, subscription.queue, subscription)
        if leaf is not None:
            self.subscriptions -= 1
            self._changed(subscription.pattern, leaf)

    def unsubscribe_all(self, subscriptions: Iterable[Subscription]) -> None:
        """``unsubscribe`` for several; in little time for thousands."""
        changes = list(self._trie.remove_all([(s.pattern, s.queue, s) for s in subscriptions]))
        self.subscriptions -= len(changes)
        self._all_changed(changes)

    def add_sink(
        self, pattern: bytes, sink: Sink, many: ManySink | None = None, *, heavy: bool = False
    ) -> None:
        if heavy:
            self._heavy.add(sink)
        self.add_sinks((pattern,), sink, many)

    def add_sinks(
        self,
        patterns: Sequence[bytes],
        sink: Sink,
        many: ManySink | None = None,
        run: RunSink | None = None,
    ) -> None:
        if many is not None and patterns:
            _, count = self._many.get(sink, (many, 0))
            self._many[sink] = (many, count + len(patterns))
            if run is not None:
                self._runs[sink] = run
        self._all_changed(list(self._trie.add_all(patterns, b"", sink)))

    def remove_sink(self, pattern: bytes, sink: Sink) -> None:
        self.remove_sinks((pattern,), sink)

    def remove_sinks(self, patterns: Iterable[bytes], sink: Sink) -> None:
        removed = list(self._trie.remove_all([(pattern, b"", sink) for pattern in patterns]))
        self._all_changed(removed)
        count = len(removed)
        known = self._many.get(sink)
        if known is not None and known[1] > count:
            self._many[sink] = (known[0], known[1] - count)
        elif known is not None:
            del self._many[sink]
            self._runs.pop(sink, None)
            self._heavy.discard(sink)

    def watch(self, watch: Watch) -> None:
        leaf = self._trie.leaf(watch.subject)
        self._watches.add(watch, self._listeners(leaf))

    def unwatch(self, watch: Watch) -> None:
        self._watches.remove(watch)

    def watch_elsewhere(self, places: Iterable[Elsewhere]) -> None:
        """Set who imports subjects of this router: listeners there count for watches here."""
        places = tuple(places)
        self._leading_elsewhere = frozenset(places)
        self._watches.ask_elsewhere(places)

    def on_unblocked(self, callback: Callable[[], None]) -> None:
        self._on_unblocked.append(callback)

    def unblocked(self) -> None:
        """An output is no longer ``blocked``: tell whoever waits, in this account and in others."""
        waiting = [self]
        for router in waiting:  # it grows on the way
            waiting += [other for other in router.imported_from if other not in waiting]
        for router in waiting:
            for callback in router._on_unblocked:
                callback()

    # Looking up

    def find(self, subject: bytes) -> Route:
        """The receivers of ``subject``; a malformed one (an empty token) has none."""
        return self.exact.get(subject) or self.find_uncached(subject)

    def cached(self) -> list[Route]:
        """What the caches know."""
        return [*self.exact.values(), *(route for route, _ in self._prefixes.values())]

    def find_uncached(self, subject: bytes) -> Route:
        """Steps 2 and 3, after a miss in ``exact``."""
        if self._acks is not None and subject.startswith(_ACK_PREFIX):
            return NOBODY if b".." in subject or subject.endswith(b".") else self._acks
        head, _dot, last = subject.rpartition(b".")
        entry = self._prefixes.get(head)
        if entry is not None and last:
            for literals in entry[1]:
                if last in literals:
                    break
            else:
                route = entry[0]
                # What goes into a stream tends to come again, unlike the replies to an inbox.
                if route.only_sink is not None and self._has_room(
                    "exact", self.exact, EXACT_ENTRIES_MAX
                ):
                    self.exact[subject] = route
                return route
        self.misses += 1
        return self._find_in_trie(subject, head, last)

    def many_of(self, sink: Sink) -> ManySink | None:
        """What accepts a batch in place of ``sink``, if anything does."""
        found = self._many.get(sink)
        return None if found is None else found[0]

    def run_of(self, sink: Sink) -> RunSink | None:
        """What accepts a run in place of ``sink``, if anything does."""
        return self._runs.get(sink)

    def acks(self) -> Route | None:
        """The receivers of every acknowledgement, if they are the same for all of them."""
        if self._acks is None:
            leaves = self._trie.whole_below(_ACK_PREFIX.split(b".")[:-1])
            if leaves is not None:
                self._acks = self._join(leaves)
        return self._acks

    def has_interest(self, subject: bytes) -> bool:
        route = self.find(subject)
        return bool(route.plain or route.groups or route.sinks)

    def resolve(self, subject: bytes) -> Target | None:
        route = self.find(subject)
        if len(route.plain) == 1 and not route.groups and not route.sinks:
            return None if route.plain[0].closed else route.plain[0]
        receivers: list[Target] = [*route.plain]
        receivers += [self._member(group) for group in route.groups]
        for sink in route.sinks:
            resolve = getattr(sink, "resolve", None)  # of an imported stream: who is there
            target = SinkTarget(subject, sink) if resolve is None else resolve(subject)
            if target is not None:
                receivers.append(target)
        if len(receivers) <= 1:
            return receivers[0] if receivers else None
        return FanOut(receivers)

    # Delivering

    def publish(self, subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> int:
        return self.deliver(self.find(subject), subject, reply, headers, payload, None, 0)

    def publish_many(self, messages: Sequence[tuple[bytes, bytes]]) -> None:
        publish_many(self, messages)

    def deliver(
        self,
        route: Route,
        subject: bytes,
        reply: bytes,
        headers: bytes,
        payload: bytes,
        origin: Origin | None,
        skip_client: int,
    ) -> int:
        """Deliver one message to everybody on ``route`` except ``skip_client``. Returns how many got it.

        ``skip_client`` is the id of a publisher that wants no echo, else 0.
        """
        count = 0
        for sink in route.sinks:
            if sink(subject, reply, headers, payload, origin) is not False:
                count += 1
        if route.guarded:
            return count + self._deliver_guarded(
                route, subject, reply, headers, payload, skip_client
            )
        receivers: Iterable[Subscription] = route.plain
        if route.groups:
            receivers = [*route.plain, *self._choose(route, skip_client)]
        elif not receivers:
            return count
        head = head_of(subject, headers)
        tail, large = tail_of(reply, headers, payload)
        nbytes = len(headers) + len(payload)
        for subscription in receivers:
            if subscription.client_id == skip_client:
                continue
            count += 1
            output = subscription.output
            if headers and not output.has_headers:
                subscription.send(subject, reply, headers, payload)
                continue
            if large is None:
                # Output.write_message, written out: a call per subscriber would double the cost.
                frame = head + subscription.sid + tail
                parts = output.parts
                if not parts:
                    output.touched.append(output)
                parts.append(frame)
                output.size = size = output.size + len(frame)
                if size > output.room:
                    output.session.overflow()
            else:
                output.write_message(head, subscription.sid, tail, large)
            output.payload_bytes += nbytes
            subscription.delivered = delivered = subscription.delivered + 1
            if delivered == subscription.messages_max:
                subscription.exhausted()
        return count

    # Private

    def _deliver_guarded(
        self,
        route: Route,
        subject: bytes,
        reply: bytes,
        headers: bytes,
        payload: bytes,
        skip_client: int,
    ) -> int:
        """Deliver to those who may see it. In a queue group another member replaces one who may not."""
        chosen: list[tuple[Subscription, ...]] = [(subscription,) for subscription in route.plain]
        for group in route.groups:
            start = self.random_bits(32) % len(group)
            chosen.append((*group[start:], *group[:start]))
        count = 0
        for candidates in chosen:
            for subscription in candidates:
                if subscription.client_id != skip_client and subscription.admits(subject):
                    subscription.send(subject, reply, headers, payload)
                    count += 1
                    break
        return count

    def route_below(self, head: bytes) -> Route | None:
        """The receivers of every subject ``<head>.<token>``, if they are known, and the same."""
        entry = self._prefixes.get(head)
        return None if entry is None or any(entry[1]) else entry[0]

    def sole_receiver_below(self, head: bytes) -> Subscription | None:
        """The one subscription that receives every subject ``<head>.<token>``, if it is known."""
        route = self.route_below(head)
        return None if route is None else _sole_receiver(route)

    def _member(self, group: tuple[Subscription, ...]) -> Subscription:
        """One member of a queue group, at random among those who keep up."""
        start = self.random_bits(32) % len(group)
        for member in (*group[start:], *group[:start]):
            if not (member.blocked or member.closed):
                return member
        return group[start]

    def _choose(self, route: Route, skip_client: int) -> list[Subscription]:
        """One random member of each queue group, never a publisher that wants no echo."""
        chosen = []
        for group in route.groups:
            start = self.random_bits(32) % len(group)
            others = skip_client or group[start].closed  # closed: it is about to leave the router
            for member in (*group[start:], *group[:start]) if others else (group[start],):
                if member.client_id != skip_client and not member.closed:
                    chosen.append(member)
                    break
        return chosen

    def _find_in_trie(self, subject: bytes, head: bytes, last: bytes) -> Route:
        tokens = subject.split(b".")
        if b"" in tokens:
            return NOBODY
        trie = self._trie
        leaves, nodes = trie.walk(tokens)
        trie.add_ends(nodes, tokens, leaves)
        route = self._join(leaves)
        if subject.startswith(_ACK_PREFIX):
            return self.acks() or route
        # Who subscribes to the first literal below drops the entry: an empty dictionary says nothing.
        literals = tuple([node.literals for node in nodes if node.literals])
        if head and not (literals and any([last in names for names in literals])):  # noqa: C419
            entry = (route, literals)
            if self._has_room("prefixes", self._prefixes, PREFIX_ENTRIES_MAX):
                self._prefixes[head] = entry
        elif self._has_room("exact", self.exact, EXACT_ENTRIES_MAX):
            self.exact[subject] = route
        return route

    def _has_room(self, name: str, cache: dict[bytes, Any], entries_max: int) -> bool:
        count = len(cache)
        if count < entries_max or (count < self.subscriptions and count < SCALED_MAX):
            return True
        entries_max = max(entries_max, min(self.subscriptions, SCALED_MAX))
        self._refused[name] += 1
        if self._refused[name] >= entries_max:
            self._refused[name] = 0
            cache.clear()
        return False

    def _join(self, leaves: list[Leaf[Receiver]]) -> Route:
        """The route of these leaves together; made once per combination."""
        if not leaves:
            return NOBODY
        if len(leaves) == 1 and (sole := leaves[0].sole) and isinstance(sole, Subscription):
            return Route.to_one(sole)  # quicker made than found
        key = tuple(leaves)
        route = self._merged.get(key)
        if route is not None:
            return route
        plain: list[Subscription] = []
        sinks: list[Sink] = []
        groups: dict[bytes, list[Subscription]] = {}
        for leaf in leaves:
            leaf.shared = True
            for queue, members in (leaf.queues or {}).items():
                # Members of one queue group may have come by different patterns.
                groups.setdefault(queue, []).extend(members)  # type: ignore[arg-type]
            for member in leaf.plain:
                if isinstance(member, Subscription):
                    plain.append(member)
                else:
                    sinks.append(member)
        # One that takes no batches is the API of JetStream or its like: any of its calls may take long.
        many, heavy = self._many, self._heavy
        weights = [SINK_UNITS if s in many and s not in heavy else LOOK_AT_ONCE for s in sinks]
        route = Route(tuple(plain), tuple(map(tuple, groups.values())), tuple(sinks), sum(weights))
        if len(self._merged) >= max(MERGED_ENTRIES_MAX, min(self.subscriptions, SCALED_MAX)):
            self._merged.clear()
        self._merged[key] = route
        return route

    def _changed(self, pattern: bytes, leaf: Leaf[Receiver]) -> None:
        """Drop the cache entries that a change of ``leaf`` makes stale."""
        if leaf.shared:
            self._merged.clear()
        if b"*" in pattern or pattern[-1:] == b">" or pattern[:1] == b"$":
            self._changed_widely(pattern.split(b"."))
        if self.exact:
            self.exact.pop(pattern, None)
        if self._prefixes:
            self._prefixes.pop(pattern.rpartition(b".")[0], None)
        if self._watches:
            self._watches.tell(pattern, self._listeners(leaf))

    def _all_changed(self, changes: list[tuple[bytes, Leaf[Receiver]]]) -> None:
        """``_changed`` for each; in little time for thousands."""
        patterns = [pattern for pattern, _leaf in changes]
        if self._watches or b"$" in {pattern[:1] for pattern in patterns}:
            for pattern, leaf in changes:
                self._changed(pattern, leaf)
            return
        if any([leaf.shared for _pattern, leaf in changes]):  # noqa: C419 - quicker as a list
            self._merged.clear()
        if not are_literal(patterns):
            self._changed_widely([b"*", b">"])  # as wide as any of them
        if self.exact:
            for known in self.exact.keys() & patterns:
                del self.exact[known]
        if self._prefixes:
            for head in {pattern.rpartition(b".")[0] for pattern in patterns}:
                self._prefixes.pop(head, None)

    def _changed_widely(self, tokens: list[bytes]) -> None:
        """Note a change of patterns that concern subjects other than their own."""
        if tokens[0] in _ACK_STARTS:
            self._acks = None
        if b"*" in tokens or tokens[-1] == b">":
            self.exact.clear()
            self._prefixes.clear()

    def _listeners(self, leaf: Leaf[Receiver] | None) -> Callable[[bytes], bool]:
        """Whether somebody listens in a queue. Imports do not count: their own watch tells."""

        def listened(queue: bytes) -> bool:
            members = () if leaf is None else leaf.members(queue) or ()
            return any(member not in self._leading_elsewhere for member in members)

        return listened
