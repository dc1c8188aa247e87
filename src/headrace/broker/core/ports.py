"""What the core is handed, as it sees it: the bus, randomness, timers, and the storage.

The bus is the router as JetStream sees it, and what it carries messages to and from. ``broker.store``
matches the storage by shape, without importing it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from ...message import StoredMessage, StoredRow, StreamState, SubjectState
from ...subjects import SubjectFilter
from ...wire.frames import Frame
from ...wire.inprocess import PublishRun
from .deliveries import Deliveries


class Origin(Protocol):
    """Who sent a message: the session, as far as a sink may care."""

    @property
    def client_id(self) -> int: ...

    @property
    def round_trip_ns(self) -> int:
        """How long its last ping took; 0 before the first answer."""

    def describe(self) -> dict[str, Any]:
        """Who this is, as advisories show it; made anew by each call."""

    def hold(self) -> None:
        """Handle nothing more of what it says, until ``release`` was called as often."""

    def release(self) -> None:
        """Go on."""


Sink = Callable[[bytes, bytes, bytes, bytes, Origin | None], bool | None]
"""``sink(subject, reply, headers, payload, origin)``: called once per message, must not block.

A sink that returns ``False`` says "nobody is here after all" (for example: a pull on a consumer that
does not exist, which arrived through a catch-all pattern): it does not count as a receiver, so the
sender gets its no-responders status. Anything else, ``None`` included, means taken.
"""


RunSink = Callable[[PublishRun, "Origin | None"], Iterable[Frame]]
"""As ``ManySink``, for publishes that may be answered together."""


ManySink = Callable[[Sequence[Frame], "Origin | None"], Iterable[Frame]]
"""``many(publishes, origin)``: takes PUB frames in order, all of which would have gone to its sink.

Returns those it leaves to the sink. A sink whose ``many`` takes a message must not decline it.
"""


class Target(Protocol):
    """The receivers of one inbox, resolved once and used for a batch."""

    @property
    def blocked(self) -> bool:
        """Whether a receiver has so much unsent output that stream messages should wait.

        Advice, for those who have more where that came from: ``send`` still works, and statuses and
        replies are sent regardless. ``Bus.on_unblocked`` tells when to try again. Who ignores it gets
        the receiver closed as a slow consumer at ``OUTBOUND_BYTES_MAX``.
        """

    @property
    def room(self) -> int:
        """How many bytes fit in before a receiver is closed as a slow consumer."""

    @property
    def steady(self) -> bool:
        """Whether it takes any number of messages: no receiver ends after a count."""

    def send(self, subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> None:
        """Put one frame into the output of each receiver; ``subject`` is what the frame shows."""

    def send_stored(self, deliveries: Deliveries, prefix: bytes) -> None:
        """``send`` for stored messages as they are, in one go; their reply subjects begin with ``prefix``."""

    def send_many(self, messages: Iterable[tuple[bytes, bytes, bytes, bytes]]) -> None:
        """``send`` for several messages: subject, reply, headers and payload of each.

        A receiver that may end on the way takes them one by one, so that a generator can stop there.
        """


class Elsewhere(Protocol):
    """A place where the same message is known by another subject: an importing account."""

    def name_of(self, subject: bytes) -> bytes | None:
        """Its subject there; None if it does not get there."""

    def watch(self, watch: Watch) -> None:
        """Answer a watch there."""

    def unwatch(self, watch: Watch) -> None:
        """No longer."""


class Watch:
    """One question: does anybody listen on ``subject`` in ``queue`` (``b""``: plainly)?

    ``listened`` is the answer; ``changed`` is called with each new one, and must not publish.
    """

    __slots__ = ("_here", "_there", "changed", "listened", "queue", "subject")

    def __init__(self, subject: bytes, queue: bytes, changed: Callable[[bool], None]) -> None:
        self.subject = subject
        self.queue = queue
        self.listened = False
        self.changed = changed
        self._here = False
        self._there: list[tuple[Elsewhere, Watch]] = []

    def answer(self, here: bool) -> bool:
        """Take what is known here; returns whether that changes the answer."""
        self._here = here
        listened = here or any(watch.listened for _, watch in self._there)
        changed = listened != self.listened
        self.listened = listened
        return changed

    def ask_elsewhere(self, places: Iterable[Elsewhere]) -> bool:
        """Ask in these places, and no longer in others; returns whether the answer changes."""
        for place, watch in self._there:
            place.unwatch(watch)
        self._there = []
        for place in places:
            subject = place.name_of(self.subject)
            if subject is not None:
                watch = Watch(subject, self.queue, self._heard)
                place.watch(watch)
                self._there.append((place, watch))
        return self.answer(self._here)

    def _heard(self, _listened: bool) -> None:
        if self.answer(self._here):
            self.changed(self.listened)


class ShortWay(Protocol):
    """Takes what workers of pull consumers say as they wrote it; see ``net.short_way``."""

    ack_sink: Sink
    """Where the acknowledgements go one by one: somebody else who receives them has to have them so."""
    request_sink: Sink
    """Likewise, the requests."""

    def take(self, acks: bytes, subject: bytes, inbox: bytes, body: bytes, origin: Origin) -> int:
        """Take lines that are plain acknowledgements, if any, and then a pull request, if ``subject`` is one.

        Returns how many messages that was; 0 if they have to come one by one, and nothing is done.
        """


class Bus(Protocol):
    """The router as JetStream sees it."""

    short_way: ShortWay | None
    """Set by whoever has one."""

    def resolve(self, subject: bytes) -> Target | None:
        """Who receives a message sent to ``subject`` now (queue groups: one member), or None."""

    def publish(self, subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> int:
        """Route an ordinary message from inside; returns how many received it."""

    def publish_many(self, messages: Sequence[tuple[bytes, bytes]]) -> None:
        """Route ``(subject, payload)`` messages: quick when many go to inboxes of one client."""

    def has_interest(self, subject: bytes) -> bool: ...

    def watch(self, watch: Watch) -> None:
        """Answer a watch now, and tell it of every change until ``unwatch``."""

    def unwatch(self, watch: Watch) -> None: ...

    def add_sink(
        self, pattern: bytes, sink: Sink, many: ManySink | None = None, *, heavy: bool = False
    ) -> None:
        """Register a handler; ``many`` does the same for a batch, quicker.

        ``heavy``: one message alone may take long, so the sender's turn is looked at after each. Without
        ``many``, every handler is taken for such a one.
        """

    def add_sinks(
        self, patterns: Sequence[bytes], sink: Sink, many: ManySink | None, run: RunSink
    ) -> None:
        """Register one for several patterns; ``run`` takes runs in its place."""

    def remove_sink(self, pattern: bytes, sink: Sink) -> None: ...

    def remove_sinks(self, patterns: Iterable[bytes], sink: Sink) -> None: ...

    def on_unblocked(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` each time some receiver that was ``blocked`` no longer is."""


class Randomness(Protocol):
    """A source of identifiers; ``random.Random`` and ``random.SystemRandom`` match."""

    def getrandbits(self, k: int, /) -> int: ...


_Bytes: TypeAlias = bytes  # a stream store has a property called bytes


class StreamStore(Protocol):
    """One stream's messages. Not thread-safe: called on the owner's thread only.

    What each of these does is said at ``store.log.log.StreamLog``, which has this shape. Whatever needs the
    disk raises StoreReadError when that cannot read now; nothing changes by it. A ``filter`` of ``None``
    means every subject.
    """

    superseded: list[tuple[int, int]] | None
    """Messages that were the newest of their subject when another came; None, as at first: not noted.
    An empty list has them noted from then on, for ``thin_superseded``; by then, no subject may have more
    than one message, unless ``thinning`` sees to it."""

    @property
    def durable_seq(self) -> int:
        """The highest sequence known to be on disk; moves only when a flush completes."""

    @property
    def state(self) -> StreamState: ...
    @property
    def lost(self) -> Losses: ...
    @property
    def last_seq(self) -> int: ...
    @property
    def first_seq(self) -> int: ...
    @property
    def messages(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    def append(
        self, subject: _Bytes, headers: _Bytes, payload: _Bytes, timestamp_ns: int
    ) -> int: ...

    def append_many(
        self,
        subjects: Sequence[_Bytes],
        payloads: Sequence[_Bytes],
        timestamp_ns: int,
        blocks: Sequence[_Bytes] = (),
    ) -> None:
        """``append`` for several messages; when it raises, the first are staged.

        One subject alone stands for all. ``blocks`` are their headers, nothing when none has any.
        """

    def append_expiring(
        self, subject: _Bytes, headers: _Bytes, payload: _Bytes, timestamp_ns: int, expires_ns: int
    ) -> int: ...
    def append_together(
        self, messages: Sequence[tuple[_Bytes, _Bytes, _Bytes, int, int]]
    ) -> int: ...
    def expiries(self) -> Iterator[tuple[int, int]]: ...
    def expires_ns(self, sequence: int) -> int: ...
    def get(self, sequence: int) -> StoredMessage | None: ...
    def holds(self, sequence: int) -> bool: ...
    def read(
        self,
        start_seq: int,
        filter: SubjectFilter | None,
        max_messages: int,
        max_bytes: int,
        last_seq: int,
    ) -> list[StoredMessage]: ...
    def rows(
        self,
        start_seq: int,
        filter: SubjectFilter | None,
        max_messages: int,
        max_bytes: int,
        last_seq: int,
    ) -> list[StoredRow]: ...
    def count(self, filter: SubjectFilter | None, start_seq: int) -> int: ...
    def remove(self, sequences: Collection[int]) -> int: ...
    def thin(self, subjects: Iterable[_Bytes], keep: int) -> list[int]: ...
    def thin_superseded(self) -> list[int]: ...
    def thinning(self, keep: int) -> Thinning: ...
    def trim(
        self, *, max_messages: int = -1, max_bytes: int = -1, before_ns: int = 0, work: int = ...
    ) -> int: ...
    def is_within(
        self, *, max_messages: int = -1, max_bytes: int = -1, before_ns: int = 0
    ) -> bool: ...
    def purge(self, filter: SubjectFilter | None, below_seq: int = 0, keep: int = 0) -> int: ...
    def purging(
        self, filter: SubjectFilter | None, below_seq: int = 0, keep: int = 0
    ) -> Removal: ...
    def dispose(self, work: int) -> bool: ...
    def present(self, sequences: Sequence[int]) -> list[int]: ...
    def headings(self, start_seq: int, most: int) -> list[tuple[int, _Bytes]]: ...
    def reset_first(self, sequence: int) -> None: ...
    def skip_to(self, sequence: int) -> None: ...
    def subject(self, subject: _Bytes) -> SubjectState | None: ...
    def last_of_each(self, subjects: Iterable[_Bytes]) -> list[int]: ...
    def rows_at(self, sequences: Iterable[int], max_bytes: int) -> Mapping[int, StoredRow]: ...
    def subjects(self, filter: SubjectFilter | None) -> Iterator[tuple[_Bytes, SubjectState]]: ...
    def subject_counts(self, filter: SubjectFilter | None) -> list[tuple[_Bytes, int]]: ...
    def lasts(self, filter: SubjectFilter | None) -> list[int]: ...
    def subjects_between(self, start_seq: int, last_seq: int) -> Iterable[_Bytes]: ...
    def last_matching(self, filter: SubjectFilter) -> int: ...
    def sequence_at(self, timestamp_ns: int) -> int: ...
    def next_with_headers(self, start_seq: int) -> int: ...
    def deleted(self) -> list[int]: ...


class Losses(Protocol):
    """What damage has taken of a stream; see ``store.index.spans.Losses``."""

    @property
    def ranges(self) -> Sequence[tuple[int, int]]: ...
    @property
    def nbytes(self) -> int: ...


class Removal(Protocol):
    """A removal that is carried out some at a time; see ``store.log.bulk.Purging``."""

    done: bool
    removed: int
    gone: Sequence[int]

    def run(self, work: int) -> int: ...


class Thinning(Protocol):
    """A pass that brings every subject down to a number of messages; see ``store.log.bulk.LimitPass``."""

    done: bool

    def run(self, work: int) -> list[int]: ...


class MetaJournal(Protocol):
    """Small durable values by key; see ``store.meta.meta.Meta``."""

    def load(self) -> Mapping[str, tuple[bytes, list[bytes]]]: ...
    def put(self, key: str, value: bytes, *, ahead: bool = False) -> None: ...
    def append(self, key: str, delta: bytes, *, ahead: bool = False) -> None: ...
    def delete(self, key: str) -> None: ...
    @property
    def staged(self) -> bool: ...
    def keep_beside(self, key: str, stream: str) -> None: ...
    def loose(self, key: str) -> Sequence[bytes]: ...
    def was_deleted(self, key: str) -> bool: ...


class Finding(Protocol):
    """Something found wrong with what is stored."""

    @property
    def path(self) -> str: ...
    @property
    def what(self) -> str: ...
    @property
    def stream(self) -> str: ...


class Storage(Protocol):
    """A store of many streams; what each of these does is said at ``store.storage.storage.FileStorage``."""

    @property
    def report(self) -> Sequence[Finding]: ...
    @property
    def meta(self) -> MetaJournal: ...
    @property
    def failed(self) -> Exception | None: ...
    @property
    def full(self) -> Exception | None: ...
    @property
    def pending_bytes(self) -> int: ...
    def streams(self) -> list[str]: ...
    def create_stream(self, name: str, *, memory: bool = False) -> StreamStore: ...
    def open_stream(
        self, name: str, expiry_of: Callable[[bytes, int], int] | None = None
    ) -> StreamStore: ...
    def holds(self, name: str, store: StreamStore) -> bool: ...
    def delete_stream(self, name: str) -> None: ...
    def barred(self) -> Mapping[str, str]: ...
    def location(self, name: str) -> str: ...
    def is_unfinished(self, name: str) -> bool: ...
    def note(self, what: str, stream: str = "") -> None: ...
    def flush(self, done: Callable[[Exception | None], None]) -> None: ...
