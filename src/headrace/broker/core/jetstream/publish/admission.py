"""Whether a published message may be stored: headers, expectations, sizes, limits, in that order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from .....api.errors import Errors
from .....limits import HEADER_BYTES_MAX
from .....subjects import SubjectFilter, is_literal, is_valid_pattern
from ..config.ranges import read_number
from ..config.refused import Refused
from ..headers.published import MARK, read_headers
from ..headers.statuses import with_headers
from ..headers.ttl import NEVER, NEVER_NS, NOTED_NS, expires_at, read_ttl, with_ttl
from ..schedule.schedules import check_schedule, check_scheduler
from .counter_copies import counted_copy
from .counters import counted, read_increment

if TYPE_CHECKING:
    from ..stream.stream import Stream

__all__ = ["Admission", "PublishChecks"]

_EXPECTED_STREAM: Final = b"Nats-Expected-Stream"
_EXPECTED_LAST: Final = b"Nats-Expected-Last-Sequence"
_EXPECTED_LAST_ID: Final = b"Nats-Expected-Last-Msg-Id"
_EXPECTED_SUBJECT_LAST: Final = b"Nats-Expected-Last-Subject-Sequence"
_EXPECTED_SUBJECT: Final = b"Nats-Expected-Last-Subject-Sequence-Subject"
_MSG_ID: Final = b"Nats-Msg-Id"
_ROLLUP: Final = b"Nats-Rollup"
_SOURCE: Final = b"Nats-Stream-Source"
_TTL: Final = b"Nats-TTL"

_FILE_OVERHEAD: Final = 30  # as the public server accounts a stored message
_HEADER_OVERHEAD: Final = 4
_MEMORY_OVERHEAD: Final = 16


class Admission(NamedTuple):
    """A message may be stored, or is a duplicate of the message ``duplicate_of``.

    ``headers`` replace those it came with, unless they are empty; so does a ``payload`` that is not None.
    ``extra`` is what the acknowledgement says beside the sequence, ``ends`` the subject of a schedule that
    is over with it.
    """

    message_id: bytes = b""
    duplicate_of: int = 0
    rollup: bytes = b""
    expires_ns: int = 0
    headers: bytes = b""
    payload: bytes | None = None
    extra: bytes = b""
    ends: bytes = b""


_PLAIN: Final = Admission()


class PublishChecks:
    """The checks of one stream's configuration."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        config = stream.config
        self._config = config
        self._max_size = config.max_msg_size
        self._counts = config.allow_msg_counter
        self._rejects = config.discard == "new" and (
            config.max_msgs > 0 or config.max_bytes > 0 or config.discard_new_per_subject
        )

    def admit(self, subject: bytes, headers: bytes, payload: bytes, now_ns: int) -> Admission:
        """Raises Refused with the answer to the publisher."""
        self._stream.check_not_sealed()
        if self._max_size >= 0 and len(headers) + len(payload) > self._max_size:
            raise Refused(Errors.STREAM_MESSAGE_EXCEEDS_MAXIMUM)
        if len(headers) > HEADER_BYTES_MAX:
            raise Refused(Errors.STREAM_HEADER_EXCEEDS_MAXIMUM)
        admission = self._read(subject, headers, payload, now_ns) if headers else _PLAIN
        if self._counts and admission.payload is None and not admission.duplicate_of:
            raise Refused(Errors.MESSAGE_INCR_MISSING)
        if self._rejects and not admission.duplicate_of:
            self._check_room(subject, headers, payload, admission.rollup)
        return admission

    def admit_copy(
        self,
        subject: bytes,
        headers: bytes,
        payload: bytes,
        now_ns: int,
        *,
        replica: bool = False,
    ) -> Admission:
        """The same for a message of another stream, which was admitted there.

        Roll-ups and lifetimes count where this stream allows them and are no error where it does not.
        A ``replica`` is never a duplicate.
        """
        self._stream.check_not_sealed()
        if self._max_size >= 0 and len(headers) + len(payload) > self._max_size:
            raise Refused(Errors.STREAM_MESSAGE_EXCEEDS_MAXIMUM)
        found = read_headers(headers)
        msg_id = found.get(_MSG_ID, b"")
        duplicate_of = 0 if replica else self._stream.window.find(msg_id, now_ns)
        if msg_id and duplicate_of:
            return Admission(msg_id, duplicate_of)
        rollup = found.get(_ROLLUP, b"").lower()
        if self._config.deny_purge or not self._config.allow_rollup_hdrs:
            rollup = b""
        if self._rejects:
            self._check_room(subject, headers, payload, rollup)
        if self._counts:
            changed, body = counted_copy(headers, payload, self.last_message(subject))
            return Admission(msg_id, headers=changed, payload=body)
        ttl = found.get(_TTL, b"")
        if not ttl or not self._config.allow_msg_ttl or not read_ttl(ttl):
            return Admission(msg_id, 0, rollup)
        expires_ns, changed = self.lifetime(ttl, headers, now_ns)
        return Admission(msg_id, 0, rollup, expires_ns, changed)

    def _read(self, subject: bytes, block: bytes, payload: bytes, now_ns: int) -> Admission:
        if MARK not in block:
            return _PLAIN
        stream = self._stream
        found = read_headers(block)
        increment = read_increment(found, payload, allowed=self._counts)
        expected = found.get(_EXPECTED_STREAM)
        if expected and expected != stream.name.encode():
            raise Refused(Errors.STREAM_NOT_MATCH)
        ttl = found.get(_TTL)
        if ttl and read_ttl(ttl) and not self._config.allow_msg_ttl:
            raise Refused(Errors.MESSAGE_TTL_DISABLED)
        self._check_sequences(subject, found)
        scheduled, ends = self.schedule(subject, found, now_ns)
        if _SOURCE in found:
            raise Refused(Errors.MESSAGE_SOURCE_HEADER_NOT_ALLOWED)
        msg_id = found.get(_MSG_ID, b"")
        if msg_id:
            duplicate_of = stream.window.find(msg_id, now_ns)
            if duplicate_of:
                return Admission(msg_id, duplicate_of)
        last_id = found.get(_EXPECTED_LAST_ID)
        if last_id and last_id != self._last_id():
            shown = self._last_id().decode(errors="replace")
            raise Refused(Errors.STREAM_WRONG_LAST_MSG_ID, id=shown)
        rollup = found.get(_ROLLUP, b"")
        if rollup:
            rollup = self.rollup(rollup)
        if increment is not None:
            return self._count(msg_id, subject, increment, block)
        expires_ns, headers = self.lifetime(ttl, block, now_ns) if ttl else (0, b"")
        if scheduled:
            headers = headers or block
            if not rollup:
                rollup, headers = b"sub", with_headers(headers, b"Nats-Rollup: sub\r\n")
            expires_ns = expires_ns or NOTED_NS
        return Admission(msg_id, 0, rollup, expires_ns, headers, ends=ends)

    def schedule(
        self, subject: bytes, found: Mapping[bytes, bytes], now_ns: int
    ) -> tuple[bool, bytes]:
        """Whether a message is a schedule, and the subject of the one it ends. Raises Refused."""
        config = self._config
        zone_of = self._stream.context.options.time_zone
        scheduled = check_schedule(found, subject, config, zone_of, now_ns)
        return scheduled, check_scheduler(found, subject, config, self._last_headers)

    def _last_headers(self, subject: bytes) -> bytes | None:
        last = self.last_message(subject)
        return last[0] if last is not None else None

    def _count(self, msg_id: bytes, subject: bytes, increment: int, block: bytes) -> Admission:
        headers, body, value = counted(increment, block, self.last_message(subject))
        if 0 <= self._max_size < len(headers) + len(body):
            raise Refused(Errors.STREAM_MESSAGE_EXCEEDS_MAXIMUM)
        return Admission(msg_id, headers=headers, payload=body, extra=b',"val":"%b"' % value)

    def last_message(self, subject: bytes) -> tuple[bytes, bytes] | None:
        """Headers and body of a subject's last message."""
        store = self._stream.store
        state = store.subject(subject)
        last = store.get(state.last_seq) if state is not None else None
        return (last.headers, last.payload) if last is not None else None

    def lifetime(self, ttl: bytes, block: bytes, now_ns: int) -> tuple[int, bytes]:
        """When a message with this TTL expires, and its headers if they have to say another one."""
        seconds = read_ttl(ttl)
        if seconds is None:
            raise Refused(Errors.MESSAGE_TTL_INVALID)
        if seconds <= 0:
            return (NEVER_NS, b"") if seconds == NEVER else (0, b"")
        least = int(self._config.subject_delete_marker_ttl)
        if seconds < least and self._config.max_msgs_per_subject != 1:
            # It must not go before a marker of its subject that is there already.
            block, seconds = with_ttl(block, least), least
            return expires_at(block, now_ns), block
        return expires_at(block, now_ns), b""

    def _last_id(self) -> bytes:
        """The id of the last message, if it has one."""
        window = self._stream.window
        return window.last_id if window.last_sequence == self._stream.store.last_seq else b""

    def _check_sequences(self, subject: bytes, found: dict[bytes, bytes]) -> None:
        store = self._stream.store
        wanted, other = found.get(_EXPECTED_SUBJECT_LAST), found.get(_EXPECTED_SUBJECT)
        if wanted:
            last = self.last_on(other or subject)
            if not _is_sequence(wanted, last):
                raise Refused(Errors.STREAM_WRONG_LAST_SEQUENCE, seq=last)
        elif other:
            raise Refused(Errors.STREAM_EXPECTED_LAST_SEQ_PER_SUBJECT_INVALID)
        wanted = found.get(_EXPECTED_LAST)
        if wanted and not _is_sequence(wanted, store.last_seq):
            raise Refused(Errors.STREAM_WRONG_LAST_SEQUENCE, seq=store.last_seq)

    def last_on(self, subject: bytes) -> int:
        """The last sequence on a subject, or on those a pattern stands for; 0 for none."""
        store = self._stream.store
        if is_literal(subject):
            state = store.subject(subject)
            return state.last_seq if state is not None else 0
        return store.last_matching(SubjectFilter([subject])) if is_valid_pattern(subject) else 0

    def rollup(self, value: bytes) -> bytes:
        """What a roll-up header asks for. Raises Refused when it may not, or is none."""
        config = self._config
        if not config.allow_rollup_hdrs or config.deny_purge:
            raise Refused(Errors.STREAM_ROLLUP_FAILED, err="rollup not permitted")
        rollup = value.lower()
        if rollup not in (b"sub", b"all"):
            shown = value.decode(errors="replace")
            raise Refused(Errors.STREAM_ROLLUP_FAILED, err=f'rollup value invalid: "{shown}"')
        return rollup

    def size(self, subject: bytes, headers: bytes, payload: bytes) -> int:
        """What a message takes, as the public server accounts it."""
        size = len(subject) + len(payload)
        if self._config.storage == "memory":
            return size + _MEMORY_OVERHEAD + len(headers)
        return size + _FILE_OVERHEAD + (_HEADER_OVERHEAD + len(headers) if headers else 0)

    def _check_room(self, subject: bytes, headers: bytes, payload: bytes, rollup: bytes) -> None:
        config = self._config
        store = self._stream.store
        replaces = False
        if config.max_msgs_per_subject > 0:
            state = store.subject(subject)
            replaces = state is not None and state.count >= config.max_msgs_per_subject
            if replaces and config.discard_new_per_subject and not rollup:
                raise Refused(
                    Errors.STREAM_STORE_FAILED, err="maximum messages per subject exceeded"
                )
        if replaces:
            return
        if 0 < config.max_msgs <= store.messages:
            raise Refused(Errors.STREAM_STORE_FAILED, err="maximum messages exceeded")
        if 0 < config.max_bytes < store.bytes + self.size(subject, headers, payload):
            raise Refused(Errors.STREAM_STORE_FAILED, err="maximum bytes exceeded")


def _is_sequence(text: bytes, sequence: int) -> bool:
    """Whether an expectation holds; one that is no number never does."""
    return read_number(text) == sequence
