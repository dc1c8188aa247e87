"""The workers' consumer: whether a surplus can be taken from it, and how it is pulled and kept in work."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from typing import Final

from ...api import base
from ...api.acks import ACK, IN_PROGRESS, parse_ack_subject
from ...api.consumers import ConsumerConfig, ConsumerInfo, PullRequest
from ...api.names import CONSUMER_DELETED, CONSUMER_IS_PUSH
from ...client.jetstream.pull import Meaning, meaning_of, read_status
from ...errors import (
    ConfigurationError,
    ConnectionClosedError,
    HeadraceError,
    NoRespondersError,
    RequestTimeoutError,
)
from ...wire import Frame
from ..links.control import Control
from ..links.link import Link
from ..options.group import OverflowOptions
from .offsets import OverflowOffset

ACKED_AT_ONCE: Final = 500


def the_consumer(control: Control, wanted: OverflowOptions, max_rows: int | None) -> ConsumerInfo:
    """The consumer, checked.

    Raises:
        ConfigurationError: there is none of this name, or it hands out no surplus; the text says what to do.
    """
    info = control.consumer_info(wanted.consumer)
    where = f"consumer {wanted.consumer!r} of stream {control.stream!r}"
    if info is None:
        raise ConfigurationError(
            f"jetstream source: stream {control.stream!r} has no consumer {wanted.consumer!r}; make it with "
            "the priority policy overflow and a priority group, for the workers and the query together"
        )
    config = info.config
    if config.deliver_subject or config.ack_policy != "explicit":
        raise ConfigurationError(
            f"jetstream source: {where} is no pull consumer with explicit acknowledgements, which 'consumer' "
            "needs"
        )
    if config.priority_policy != "overflow":
        raise ConfigurationError(
            f"jetstream source: {where} has the priority policy {config.priority_policy}; "
            "'consumer' needs overflow"
        )
    if wanted.group and wanted.group not in config.priority_groups:
        raise ConfigurationError(
            f"jetstream source: {where} has no priority group {wanted.group!r}; it has: "
            f"{', '.join(config.priority_groups)}"
        )
    if not wanted.group and len(config.priority_groups) != 1:
        raise ConfigurationError(
            f"jetstream source: {where} has several priority groups: {', '.join(config.priority_groups)}; "
            "say which one with 'priorityGroup'"
        )
    if max_rows is not None and 0 < config.max_ack_pending <= max_rows:
        raise ConfigurationError(
            f"jetstream source: {where} lets {config.max_ack_pending} messages be unacknowledged, and a "
            f"batch of {max_rows} would leave none of them for its workers; set maxOffsetsPerTrigger lower, "
            "or its max_ack_pending higher"
        )
    return info


def acknowledge(control: Control, batch: OverflowOffset, info: ConsumerInfo) -> None:
    """Acknowledge a batch's messages, and wait until the server has it. Again does no harm.

    A consumer that was made again never handed out what comes after its own position: servers give no answer
    then, so it is not asked.
    """
    subjects = [
        subject
        for sequence, subject in batch.ack_subjects()
        if sequence <= info.delivered.stream_seq
    ]
    for first in range(0, len(subjects), ACKED_AT_ONCE):
        some = subjects[first : first + ACKED_AT_ONCE]
        control.link.request_many([(subject, ACK) for subject in some])


_BAD_REQUEST: Final = 400
_NOBODY: Final = 503
_MARGIN_S: Final = 5.0  # a server ends a request when its time is over; later it has gone


class Pull:
    """Collects what the server hands out. A failed request loses nothing of what came before.

    Args:
        stream, overflow: where from, and from which marks.
        expires_s: how long a request waits.
    """

    def __init__(self, stream: str, overflow: OverflowOptions, expires_s: float) -> None:
        self._stream = stream
        self._overflow = overflow
        self._expires_s = expires_s
        self._deliveries: dict[int, int] = {}
        self._prefix = ""

    def found(self) -> tuple[dict[int, int], str]:
        """The messages that came: the consumer's sequence of each stream's, and how ack subjects begin."""
        return dict(self._deliveries), self._prefix

    def forget(self) -> None:
        """They are in a batch now."""
        self._deliveries.clear()

    def take(self, control: Control, config: ConsumerConfig, most: int) -> None:
        """Ask for messages once, until there are ``most`` or the request expires.

        Raises:
            ConfigurationError: the server refuses the request for good, or has no such consumer any more.
            ConnectionClosedError, RequestTimeoutError, NoRespondersError: it did not come to its end.
        """
        wanted = most - len(self._deliveries)
        if config.max_batch > 0:
            wanted = min(wanted, config.max_batch)
        if wanted <= 0:
            return
        expires_s = self._expires_s
        if config.max_expires > 0:
            expires_s = min(expires_s, config.max_expires)
        request = PullRequest(
            batch=wanted,
            expires=expires_s,
            group=self._overflow.group or config.priority_groups[0],
            min_pending=self._overflow.min_pending,
            min_ack_pending=self._overflow.min_ack_pending,
        )
        link = control.link
        inbox, sid = link.subscribe()
        try:
            subject = link.api("CONSUMER", "MSG", "NEXT", self._stream, self._overflow.consumer)
            link.publish(subject, base.encode(request), inbox)
            came = 0
            while came < wanted:
                frames = link.poll(expires_s + _MARGIN_S)
                if not frames:
                    link.close()
                    raise ConnectionClosedError("the server did not end a pull request")
                messages = [frame for frame in frames if frame[3]]
                self._keep(messages)
                came += len(messages)
                statuses = [frame for frame in frames if not frame[3]]
                if any([self._is_end(control, frame) for frame in statuses]):  # noqa: C419
                    return
        finally:
            if not link.closed:
                link.unsubscribe(sid)

    def _keep(self, messages: list[Frame]) -> None:
        for frame in messages:
            reply = frame[3].decode()
            tokens = parse_ack_subject(reply)
            self._deliveries[tokens.stream_seq] = tokens.consumer_seq
        if messages:
            self._prefix = _prefix(messages[-1][3].decode())

    def _is_end(self, control: Control, frame: Frame) -> bool:
        """Whether a status ends the request in the ordinary way."""
        status = read_status(frame[4])
        meaning = meaning_of(status)
        if meaning is Meaning.HEARTBEAT:
            return False
        if meaning is Meaning.ENDED:
            return True
        if status.code == _BAD_REQUEST or status.key == CONSUMER_IS_PUSH:
            raise ConfigurationError(
                f"jetstream source: the server refuses to pull from consumer {self._overflow.consumer!r} of "
                f"stream {self._stream!r}: {status}"
            )
        if status.code == _NOBODY or status.key == CONSUMER_DELETED:
            if control.consumer_info(self._overflow.consumer) is None:
                raise ConfigurationError(
                    f"jetstream source: consumer {self._overflow.consumer!r} of stream {self._stream!r} was "
                    "deleted; make it again, or stop the query"
                )
            raise NoRespondersError(f"consumer {self._overflow.consumer!r} does not answer")
        raise RequestTimeoutError(f"the server answered a pull with {status}")


def _prefix(reply: str) -> str:
    """What the ack subjects of a consumer begin with. There are two forms; newer ones may be longer."""
    tokens = reply.split(".")
    front = 4 if len(tokens) < 11 else 6
    return ".".join(tokens[:front])


_LOG: Final = logging.getLogger("headrace.spark")

SENT_AT_ONCE: Final = 1000


class Keeper:
    """Holds messages back from others.

    Args:
        connect: opens a link, which nobody else uses.
        interval_s: how often the server is told; less than the consumer's ``ack_wait``.
        what: whose messages, for the log.
    """

    def __init__(self, connect: Callable[[], Link], interval_s: float, what: str) -> None:
        self._connect = connect
        self._interval_s = interval_s
        self._what = what
        self._held: tuple[bytes, ...] = ()
        self._changed = threading.Condition()
        self._is_over = False
        self._thread: threading.Thread | None = None
        self._link: Link | None = None
        self._has_failed = False

    def hold(self, subjects: Iterable[str]) -> None:
        """Hold the messages with these ack subjects from now on, and no others."""
        held = tuple(subject.encode() for subject in subjects)
        with self._changed:
            self._held = held
            self._changed.notify()
        if held and self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name=f"keeps {self._what}", daemon=True
            )
            self._thread.start()

    def release(self) -> None:
        """Hold nothing."""
        self.hold(())

    def close(self) -> None:
        """End the thread, and wait for it."""
        with self._changed:
            self._is_over, self._held = True, ()
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._is_over:
                    break
                held = self._held
            if held:
                self._tell(held)
            with self._changed:
                if not self._is_over and self._held is held:
                    self._changed.wait(self._interval_s if held else None)
        if self._link is not None:
            self._link.close()

    def _tell(self, held: tuple[bytes, ...]) -> None:
        try:
            if self._link is None or not self._link.is_alive():
                self._link = self._connect()
            for first in range(0, len(held), SENT_AT_ONCE):
                some = held[first : first + SENT_AT_ONCE]
                size = len(IN_PROGRESS)
                self._link.send(
                    b"".join([b"PUB %b %d\r\n%b\r\n" % (each, size, IN_PROGRESS) for each in some])
                )
            self._has_failed = False
        except HeadraceError as error:
            if not self._has_failed:
                _LOG.warning(
                    "the server cannot be told that messages of %s are in work, and may hand them to others: "
                    "%s",
                    self._what,
                    error,
                )
            self._has_failed = True
