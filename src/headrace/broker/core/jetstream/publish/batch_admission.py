"""Whether the messages of an atomic batch may be stored, each as if those before it already were."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from .....api.errors import Errors
from ..config.ranges import read_number
from ..config.refused import Refused
from ..headers.statuses import with_headers
from ..headers.ttl import NOTED_NS, read_ttl
from .counters import counted, read_increment

if TYPE_CHECKING:
    from ..stream.stream import Stream

__all__ = ["BatchChecks", "Staged"]

_EXPECTED_STREAM: Final = b"Nats-Expected-Stream"
_EXPECTED_LAST: Final = b"Nats-Expected-Last-Sequence"
_EXPECTED_SUBJECT_LAST: Final = b"Nats-Expected-Last-Subject-Sequence"
_EXPECTED_SUBJECT: Final = b"Nats-Expected-Last-Subject-Sequence-Subject"
_MSG_ID: Final = b"Nats-Msg-Id"
_ROLLUP: Final = b"Nats-Rollup"
_SOURCE: Final = b"Nats-Stream-Source"
_TTL: Final = b"Nats-TTL"


class Staged(NamedTuple):
    """A message of a batch, as it is to be stored, and what its storing brings with it."""

    subject: bytes
    headers: bytes
    payload: bytes
    timestamp_ns: int
    expires_ns: int
    message_id: bytes
    rollup: bytes
    ends: bytes
    """The subject of a schedule that is over with it."""


class BatchChecks:
    """The checks of one commit. What was admitted counts for those that follow; nothing is stored."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._config = stream.config
        self._checks = stream.checks
        self._now_ns = stream.time()
        self._ids: set[bytes] = set()
        self._counts: dict[bytes, int] = {}
        self._totals: dict[bytes, tuple[bytes, bytes]] = {}
        self._expected: dict[bytes, int] = {}
        self._staged = 0
        self._nbytes = 0

    def admit(
        self, subject: bytes, headers: bytes, payload: bytes, found: Mapping[bytes, bytes]
    ) -> Staged:
        """``found`` are headers of ours. Raises Refused with the answer for the whole batch."""
        config = self._config
        subject = self._stream.renamed(subject)
        if not found and not config.allow_msg_counter:
            self._count_in(subject, headers, payload, b"")
            return Staged(subject, headers, payload, self._now_ns, 0, b"", b"", b"")
        increment = read_increment(found, payload, allowed=config.allow_msg_counter)
        expected = found.get(_EXPECTED_STREAM)
        if expected and expected != self._stream.name.encode():
            raise Refused(Errors.STREAM_NOT_MATCH)
        self._check_ttl(found)
        message_id = self._check_id(found)
        if _SOURCE in found:
            raise Refused(Errors.MESSAGE_SOURCE_HEADER_NOT_ALLOWED)
        if increment is not None:
            headers, payload = self._count(subject, increment, headers)
        elif config.allow_msg_counter:
            raise Refused(Errors.MESSAGE_INCR_MISSING)
        self._check_last(found)
        self._check_subject_last(subject, found)
        scheduled, ends = self._checks.schedule(subject, found, self._now_ns)
        rollup = self._check_rollup(subject, found, scheduled=scheduled)
        if scheduled and not found.get(_ROLLUP):
            headers = with_headers(headers, b"Nats-Rollup: sub\r\n")
        expires_ns = NOTED_NS if scheduled else 0
        if found.get(_TTL):
            expires_ns, changed = self._checks.lifetime(found[_TTL], headers, self._now_ns)
            headers = changed or headers
        self._count_in(subject, headers, payload, rollup)
        return Staged(subject, headers, payload, self._now_ns, expires_ns, message_id, rollup, ends)

    def _count_in(self, subject: bytes, headers: bytes, payload: bytes, rollup: bytes) -> None:
        self._staged += 1
        self._counts[subject] = self._counts.get(subject, 0) + 1
        if self._config.discard == "new":
            self._nbytes += self._checks.size(subject, headers, payload)
            self._check_room(subject, rollup)

    def _check_ttl(self, found: Mapping[bytes, bytes]) -> None:
        ttl = found.get(_TTL)
        if not ttl:
            return
        if not self._config.allow_msg_ttl:
            raise Refused(Errors.MESSAGE_TTL_DISABLED)
        if read_ttl(ttl) is None:
            raise Refused(Errors.MESSAGE_TTL_INVALID)

    def _check_id(self, found: Mapping[bytes, bytes]) -> bytes:
        message_id = found.get(_MSG_ID, b"")
        if message_id:
            if message_id in self._ids or self._stream.window.find(message_id, self._now_ns):
                raise Refused(Errors.BATCH_DUPLICATE_ID)
            self._ids.add(message_id)
        return message_id

    def _count(self, subject: bytes, increment: int, headers: bytes) -> tuple[bytes, bytes]:
        before = self._totals.get(subject) or self._checks.last_message(subject)
        headers, body, _ = counted(increment, headers, before)
        if 0 <= self._config.max_msg_size < len(headers) + len(body):
            raise Refused(Errors.STREAM_MESSAGE_EXCEEDS_MAXIMUM)
        self._totals[subject] = headers, body
        return headers, body

    def _check_last(self, found: Mapping[bytes, bytes]) -> None:
        wanted = found.get(_EXPECTED_LAST)
        if not wanted:
            return
        last = self._stream.store.last_seq + self._staged
        if read_number(wanted) != last:
            raise Refused(Errors.STREAM_WRONG_LAST_SEQUENCE, seq=last)
        if self._staged:  # only the first message of a batch may say so
            raise Refused(Errors.STREAM_WRONG_LAST_SEQUENCE_CONSTANT)

    def _check_subject_last(self, subject: bytes, found: Mapping[bytes, bytes]) -> None:
        wanted, other = found.get(_EXPECTED_SUBJECT_LAST), found.get(_EXPECTED_SUBJECT)
        if not wanted:
            if other:
                raise Refused(Errors.STREAM_EXPECTED_LAST_SEQ_PER_SUBJECT_INVALID)
            return
        about = other or subject
        if about in self._counts:
            raise Refused(Errors.STREAM_WRONG_LAST_SEQUENCE_CONSTANT)
        last = self._expected.get(about)
        if last is None:
            last = self._checks.last_on(about)
        if read_number(wanted) != last:
            raise Refused(Errors.STREAM_WRONG_LAST_SEQUENCE, seq=last)
        self._expected[about] = last

    def _check_rollup(
        self, subject: bytes, found: Mapping[bytes, bytes], *, scheduled: bool
    ) -> bytes:
        value = found.get(_ROLLUP, b"") or (b"sub" if scheduled else b"")
        if not value:
            return b""
        rollup = self._checks.rollup(value)
        if rollup == b"sub" and subject in self._counts:
            raise Refused(Errors.STREAM_ROLLUP_FAILED, err="batch rollup sub invalid")
        if rollup == b"all" and self._staged:
            raise Refused(Errors.STREAM_ROLLUP_FAILED, err="batch rollup all invalid")
        return rollup

    def _check_room(self, subject: bytes, rollup: bytes) -> None:
        config, store = self._config, self._stream.store
        if 0 < config.max_msgs < store.messages + self._staged:
            raise Refused(Errors.STREAM_STORE_FAILED, err="maximum messages exceeded")
        if 0 < config.max_bytes < store.bytes + self._nbytes:
            raise Refused(Errors.STREAM_STORE_FAILED, err="maximum bytes exceeded")
        if config.discard_new_per_subject and not rollup:
            state = store.subject(subject)
            there = state.count if state is not None else 0
            if there + self._counts[subject] > config.max_msgs_per_subject:
                raise Refused(
                    Errors.STREAM_STORE_FAILED, err="maximum messages per subject exceeded"
                )
