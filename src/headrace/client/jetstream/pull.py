"""The accounting of pull requests, without I/O: what to ask for, what an answer means.

This is the algorithm of the JetStream simplification document (section "Consume specification"), step by
step; the step numbers below are the document's. The asyncio shells around it are ``fetch`` and ``consume``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Final, NamedTuple, TypedDict

from ...api import names
from ...api.base import encode
from ...api.consumers import PullRequest
from ...errors import ConfigurationError
from ...field_docs import described
from ...quantities import GO_UNITS, duration_ns
from ...retries import pause_s
from ...wire.frames import Frame
from ...wire.headers import header_value, parse_headers


class Pin:
    """One consumer handle's pin id, shared by its fetches and consumes.

    Attributes:
        id: the id the server gave us, "" while we are not pinned.
        on_pinned: called with the id when we become the pinned client.
        on_unpinned: called when another client is.
    """

    __slots__ = ("_is_sent", "_report", "id", "on_pinned", "on_unpinned")

    def __init__(self, report: Callable[[Exception], None]) -> None:
        self._report = report
        self._is_sent = False  # some pull had this id
        self.id = ""
        self.on_pinned: Callable[[str], object] | None = None
        self.on_unpinned: Callable[[], object] | None = None

    def learn(self, headers: bytes) -> None:
        """Read the pin id of a delivered message; an absent or empty one says nothing."""
        value = header_value(headers, _PIN_ID) if headers else None
        if not value:
            return
        pin_id = value.decode(errors="replace")
        if pin_id != self.id:
            self.id = pin_id
            self._is_sent = False
            if self.on_pinned is not None:
                self._call(self.on_pinned, pin_id)

    def use(self) -> str:
        """The id for a pull that is being sent."""
        self._is_sent = True
        return self.id

    def lost(self) -> None:
        """A pull with an id was refused. As long as none was sent with this one, it had an older one."""
        if self.id and self._is_sent:
            self.id = ""
            if self.on_unpinned is not None:
                self._call(self.on_unpinned)

    def _call(self, callback: Callable[..., object], *args: str) -> None:
        try:
            callback(*args)
        except Exception as error:
            self._report(error)


MESSAGES_DEFAULT: Final = 500
EXPIRES_DEFAULT_S: Final = 30.0
EXPIRES_MIN_S: Final = 1.0
HEARTBEAT_MIN_S: Final = 0.5
HEARTBEAT_MAX_S: Final = 30.0
BATCH_FOR_BYTES: Final = 1_000_000  # what to ask for when only bytes are limited
PAUSE_FIRST_S: Final = 0.25  # after a refusal: doubling …
PAUSE_MAX_S: Final = 5.0  # … up to here
LATE_REFUSALS_MAX: Final = 32

_PIN_ID: Final = names.PIN_ID.encode()
_PIN_LINE_BYTES: Final = len(_PIN_ID) + len(b": \r\n")
_EMPTY_BLOCK_BYTES: Final = len(b"NATS/1.0\r\n\r\n")


@described
class PriorityOptions(TypedDict, total=False):
    """What a pull from a consumer with priority groups may say.

    ``group`` is needed by such a consumer. ``min_pending`` and ``min_ack_pending`` (policy ``overflow``):
    only serve this pull when at least this many messages wait, or wait for their ack. ``priority``
    (policy ``prioritized``): 0 (first) to 9.
    """

    group: str
    """The priority group to pull for; a consumer with priority groups needs it."""

    min_pending: int
    """With ``overflow``: be served only when at least this many messages wait; 0 by default."""

    min_ack_pending: int
    """With ``overflow``: be served only when at least this many messages wait for their ack; 0 by default."""

    priority: int
    """With ``prioritized``: 0, the default and first, to 9."""


def check_options(priority: PriorityOptions) -> None:
    """Raise ConfigurationError where no consumer could take these options."""
    unknown = sorted(set(priority) - set(PriorityOptions.__annotations__))
    if unknown:
        raise ConfigurationError(
            f"unknown argument {', '.join(unknown)}; beside those of the signature there are "
            f"{', '.join(PriorityOptions.__annotations__)}"
        )
    level = priority.get("priority", 0)
    if not 0 <= level <= 9:
        raise ConfigurationError(f"priority is {level}; accepted: 0 (first) to 9")


# What a status means


class Status(NamedTuple):
    """A status message. The pending counts are None when the header is not there."""

    code: int
    description: str
    pending_messages: int | None = None
    pending_bytes: int | None = None

    @property
    def key(self) -> tuple[int, str]:
        return (self.code, self.description)

    def __str__(self) -> str:
        return f"{self.code} {self.description}".rstrip()


class Meaning(Enum):
    """The classes of the document's "Status handling", and two it implies."""

    HEARTBEAT = "the server is there; no pull has ended"
    ENDED = "a pull has ended as pulls do"
    WARNING = "a pull was refused or cut short; the user may want to know"
    ERROR = "a pull was refused; the user must know"
    UNPINNED = "a pull was refused because another client is pinned"
    TERMINAL = "no pull will ever be served again"


_TERMINAL: Final = frozenset({names.CONSUMER_DELETED, names.CONSUMER_IS_PUSH})
_SILENT_409: Final = frozenset({names.MESSAGE_SIZE_EXCEEDS, names.BATCH_COMPLETED})


def read_status(headers: bytes) -> Status:
    """Read the header block of a status message. Raises ProtocolError if it is malformed."""
    parsed = parse_headers(headers)
    return Status(
        parsed.status or 0,
        parsed.description,
        _count(parsed.get(names.PENDING_MESSAGES)),
        _count(parsed.get(names.PENDING_BYTES)),
    )


def meaning_of(status: Status) -> Meaning:
    """Which class a status belongs to. An unknown one is an error: it must not vanish."""
    code, key = status.code, status.key
    if code == 100:
        return Meaning.HEARTBEAT
    if code in (404, 408):
        return Meaning.ENDED
    if code == 423:
        return Meaning.UNPINNED
    if key in _TERMINAL:
        return Meaning.TERMINAL
    if code == 409:
        return Meaning.ENDED if key in _SILENT_409 else Meaning.WARNING
    return Meaning.ERROR


def _count(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        return None


# Requests


def heartbeat_for(expires: float) -> float:
    """The document's default: half of ``expires``, at least 0.5 and at most 30 seconds."""
    return min(max(expires / 2, HEARTBEAT_MIN_S), HEARTBEAT_MAX_S)


@lru_cache(maxsize=256)
def encode_request(request: PullRequest) -> bytes:
    """The JSON body of a pull; the same few are sent again and again."""
    return encode(request)


def message_size(frame: Frame) -> int:
    """What the server charged against ``max_bytes``: subject, ack reply, headers and payload.

    The pin id is added after that, so it does not count.
    """
    _, subject, _, reply, headers, payload = frame
    size = len(subject) + len(reply) + len(headers) + len(payload)
    pin = header_value(headers, _PIN_ID) if headers else None
    if pin is not None:
        line = _PIN_LINE_BYTES + len(pin)
        size -= line
        if len(headers) == line + _EMPTY_BLOCK_BYTES:  # there were no headers before
            size -= _EMPTY_BLOCK_BYTES
    return size


@dataclass(frozen=True, kw_only=True, slots=True)
class ConsumeLimits:
    """How much a consume keeps ready, and how it pulls. Durations in seconds, sizes in bytes.

    Attributes:
        max_messages: messages kept ready; not together with ``max_bytes``. Default: as many as are handled in
            half of the consumer's ``ack_wait``, at most 500; the first one shows how long that takes.
        max_bytes: bytes kept ready, counted as the server does.
        expires: how long one pull may wait, at least 1 second.
        heartbeat: how long the server may be silent; None: half of ``expires``, 0.5 to 30 seconds.
        threshold_messages, threshold_bytes: refill when so much or less is left; None: half.

    Raises:
        ConfigurationError: a value is out of range or two exclude each other.
    """

    max_messages: int = 0
    max_bytes: int = 0
    expires: float = EXPIRES_DEFAULT_S
    heartbeat: float | None = None
    threshold_messages: int | None = None
    threshold_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.max_messages and self.max_bytes:
            raise ConfigurationError("give max_messages or max_bytes, not both")
        if self.max_messages < 0 or self.max_bytes < 0:
            raise ConfigurationError(
                f"max_messages ({self.max_messages}) and max_bytes ({self.max_bytes}) "
                "must not be negative"
            )
        if self.expires < EXPIRES_MIN_S:
            raise ConfigurationError(
                f"expires is {self.expires} s; accepted: {EXPIRES_MIN_S} s or more"
            )
        if self.heartbeat is not None and not (
            HEARTBEAT_MIN_S <= self.heartbeat <= min(HEARTBEAT_MAX_S, self.expires / 2)
        ):
            raise ConfigurationError(
                f"heartbeat is {self.heartbeat} s; accepted: {HEARTBEAT_MIN_S} s to "
                f"{HEARTBEAT_MAX_S} s and at most half of expires ({self.expires} s)"
            )
        _check_threshold("messages", self.threshold_messages, self.messages)
        _check_threshold("bytes", self.threshold_bytes, self.max_bytes)

    @property
    def are_defaults(self) -> bool:
        """Whether it was left open how much is kept ready."""
        given = (self.max_messages or None, self.max_bytes or None)
        return (*given, self.threshold_messages, self.threshold_bytes) == 4 * (None,)

    @property
    def messages(self) -> int:
        """``max_messages`` with its default, or the large number that goes with ``max_bytes``."""
        if self.max_bytes:
            return BATCH_FOR_BYTES
        return self.max_messages or MESSAGES_DEFAULT


def _check_threshold(what: str, threshold: int | None, limit: int) -> None:
    if threshold is not None and not 0 <= threshold <= limit:
        raise ConfigurationError(
            f"threshold_{what} is {threshold}; accepted: 0 to max_{what} ({limit})"
        )


# The account


class PullAccount:
    """How much has been asked for and not been processed; says when and what to pull next.

    One pull more or less outstanding does not matter, only the sums do: no pull is tracked by itself.

    Attributes:
        pending_messages, pending_bytes: asked for, and neither processed nor given back by a status.
        buffered_messages, buffered_bytes: received and not processed; part of the pending ones.
        expires: seconds a pull waits: as asked for, or what the consumer allows.
        heartbeat: seconds of silence between two heartbeats.
    """

    def __init__(self, limits: ConsumeLimits, priority: PriorityOptions | None = None) -> None:
        self.pending_messages = 0
        self.pending_bytes = 0
        self.buffered_messages = 0
        self.buffered_bytes = 0
        self.counts_bytes = bool(limits.max_bytes)
        self._messages = limits.messages
        self._bytes = limits.max_bytes
        self._threshold_messages = _threshold(limits.threshold_messages, self._messages)
        self._threshold_bytes = _threshold(limits.threshold_bytes, self._bytes)
        self._priority = priority or {}
        self.expires = limits.expires
        self.heartbeat = limits.heartbeat or heartbeat_for(limits.expires)
        self._batch_max = self._messages
        self._bytes_max = self._bytes
        self._last = (0, 0)  # messages and bytes of the last request
        self._too_small = False  # the next message did not fit into what was asked for
        self._refusals = 0
        self._late_refusals = 0

    def limit(self, messages: int) -> None:
        """Keep so many ready from now on, and refill when half of it is left. 0: pull nothing."""
        self._messages = messages
        self._threshold_messages = messages // 2

    # Step 1

    @property
    def due(self) -> bool:
        """Whether a new pull request is to be sent now."""
        if self._too_small:
            return False
        if self.counts_bytes:
            return self.pending_bytes <= self._threshold_bytes and self.pending_bytes < self._bytes
        return (
            self.pending_messages <= self._threshold_messages
            and self.pending_messages < self._messages
        )

    @property
    def taken_until_due(self) -> int:
        """How many more messages must be processed before a pull can be due, at least 1."""
        if self.counts_bytes or self._too_small:
            return 1
        return max(1, self.pending_messages - self._threshold_messages)

    @property
    def outstanding(self) -> bool:
        """Whether the server has something left to deliver, so that it must send heartbeats."""
        if self.counts_bytes:
            return self.pending_bytes > self.buffered_bytes
        return self.pending_messages > self.buffered_messages

    # Step 2

    def request(self, pin_id: str = "") -> PullRequest:
        """The pull that fills the buffer up; its size is pending from here on."""
        if self.counts_bytes:
            batch = min(BATCH_FOR_BYTES, self._batch_max)
            max_bytes = min(self._bytes - self.pending_bytes, self._bytes_max)
        else:
            batch = min(self._messages - self.pending_messages, self._batch_max)
            max_bytes = 0
        self._last = (batch, max_bytes)
        self.pending_messages += batch
        self.pending_bytes += max_bytes
        return self._pull(batch, max_bytes, self.expires, self.heartbeat, pin_id)

    def keep_pin_request(self, pin_id: str) -> PullRequest:
        """A pull that only shows that the pinned client is alive: it asks for nothing that could be
        delivered (one message of one byte) and ends at once."""
        self.pending_messages += 1
        self.pending_bytes += 1
        return self._pull(1, 1, 0.001, 0.0, pin_id)

    def _pull(
        self, batch: int, max_bytes: int, expires: float, heartbeat: float, pin_id: str
    ) -> PullRequest:
        return PullRequest(
            batch=batch,
            max_bytes=max_bytes,
            expires=expires,
            idle_heartbeat=heartbeat,
            id=pin_id,
            **self._priority,
        )

    # Step 5

    def arrived(self, messages: int, size: int) -> None:
        """User messages were received; they stay pending until they are processed."""
        self.buffered_messages += messages
        self.buffered_bytes += size
        self._refusals = 0

    def processed(self, messages: int, size: int) -> None:
        """User messages were handed over."""
        self.buffered_messages -= messages
        self.buffered_bytes -= size
        self.pending_messages -= messages
        self.pending_bytes -= size if self.counts_bytes else 0
        self._too_small = False

    # Steps 6 to 8

    def status(self, status: Status) -> Meaning:
        """A status came: correct the sums, and say what it means."""
        meaning = meaning_of(status)
        if meaning is Meaning.HEARTBEAT:
            self._refusals = 0
            return meaning
        if meaning is Meaning.UNPINNED:
            self.restart()
            return meaning
        if status.pending_messages is not None:
            self._give_back(status.pending_messages, status.pending_bytes or 0)
            if status.key == names.MESSAGE_SIZE_EXCEEDS and self.counts_bytes:
                return self._did_not_fit()
            return meaning
        if status.code == 503 or status.key == names.LEADERSHIP_CHANGE:
            self.restart()  # whoever held our pulls is gone
        else:
            self._give_back(*self._last)
        if not self._learn(status.description):
            self._refusals += 1
        return meaning

    @property
    def pause(self) -> float:
        """Seconds to wait before the next pull; 0 unless pulls were refused."""
        if not self._refusals:
            return 0.0
        return pause_s(self._refusals, PAUSE_FIRST_S, PAUSE_MAX_S)

    def restart(self) -> None:
        """No pull is outstanding any more, as after a lost connection; only the buffer counts."""
        self.pending_messages = self.buffered_messages
        self.pending_bytes = self.buffered_bytes if self.counts_bytes else 0
        self._too_small = False

    def _give_back(self, messages: int, size: int) -> None:
        """What a pull did not deliver is no longer pending. Never below what lies in the buffer: a
        status may belong to a pull from before a restart."""
        self.pending_messages = max(self.pending_messages - messages, self.buffered_messages)
        floor = self.buffered_bytes if self.counts_bytes else 0
        self.pending_bytes = max(self.pending_bytes - size, floor)

    def _did_not_fit(self) -> Meaning:
        """The next message is larger than the room that was left: ask again once there is more."""
        if self.buffered_messages or self.pending_bytes:
            self._too_small = True
            return Meaning.ENDED
        self._refusals += 1
        return Meaning.ERROR  # there was all the room there is

    def _learn(self, description: str) -> bool:
        """Keep to a limit of the consumer that a refusal names; False if it named no new one.

        Pulls sent before a limit was learned are refused for it too; that many are not held against us.
        """
        found = _LIMIT.fullmatch(description)
        if found is None:
            return False
        what, value = found.groups()
        if what == "Expires":
            limit, asked = (duration_ns(value, GO_UNITS) or 0) / 1e9, self.expires
        else:
            limit = float(value) if value.isdigit() else 0.0
            asked = self._batch_max if what == "Batch" else self._bytes_max
        if not limit or limit >= asked:
            self._late_refusals -= 1
            return limit == asked and self._late_refusals > 0
        self._late_refusals = LATE_REFUSALS_MAX
        if what == "Expires":
            self.expires = limit
            self.heartbeat = min(self.heartbeat, limit / 2)
        elif what == "Batch":
            self._batch_max = int(limit)
        else:
            self._bytes_max = int(limit)
        return True


_LIMIT: Final = re.compile(r"Exceeded MaxRequest(Batch|Expires|MaxBytes) of (\S+)")


def _threshold(given: int | None, limit: int) -> int:
    return limit // 2 if given is None else given
