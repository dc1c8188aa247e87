"""Direct get: stored messages as raw messages, one or a batch, without JSON around them.

Statuses and headers are those of the public server; a stream without ``allow_direct`` looks as if nobody
were there.

Gets of last messages by subject that came in one chunk are answered together (``DirectRuns``): so ask who
reads many keys of a bucket at once. Each answer is, byte for byte, the one ``DirectGet`` would give; what
is out of the ordinary is left to that.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import chain, count
from typing import Final, NamedTuple, TypeAlias

from .....api import names
from .....api.base import DocumentError, decode
from .....api.messages import DirectGetRequest
from .....api.times import format_time, parse_time
from .....errors import StoreError, StoreReadError
from .....limits import LAST_PATTERNS_MAX
from .....message import StoredMessage, StoredRow
from .....subjects import SubjectFilter, is_valid_pattern, is_valid_subject
from .....wire.frames import Frame
from ...ports import Origin, StreamStore, Target
from ...server_headers import with_own_places, with_place
from ..config.sizes import check_ranges, check_request_size, with_checked_texts
from ..context import Context
from ..headers import required_level_too_high, with_headers
from ..statuses import status, unreadable
from ..stream.stream import Stream
from .dispatcher import ApiDispatcher, Assets
from .messages import find_unexpired

DIRECT: Final = b"$JS.API.DIRECT.GET."
_Message: TypeAlias = tuple[bytes, bytes, bytes, bytes]
"""Subject, reply, headers and payload, as ``Target.send_many`` takes them."""
_BATCH_BYTES: Final = 64 * 1024 * 1024  # of one batch whose request sets no max_bytes
_FRAME_BYTES: Final = 64  # of a message on the wire, at most, beside its parts
_READ: Final = 256
_READ_BYTES: Final = 4 * 1024 * 1024
_SUBJECTS_MAX: Final = 1024  # more subjects in one answer: 413
NOT_FOUND: Final = status(names.MESSAGE_NOT_FOUND)
PLACE: Final = (
    b"Nats-Stream: %b\r\nNats-Subject: %b\r\nNats-Sequence: %d\r\nNats-Time-Stamp: %b\r\n"
)
_BATCHED: Final = PLACE + b"Nats-Num-Pending: %d\r\nNats-Last-Sequence: %d\r\n"
_BAD: Final = status(names.BAD_DIRECT_REQUEST)
_EOB: Final = status(names.EOB)
RUN_MIN: Final = 4  # fewer are not worth it
RUN_MAX: Final = 512  # what is beyond is answered one by one, in turns
RUN_BYTES: Final = 1024 * 1024


class DirectGet:
    """Serves ``$JS.API.DIRECT.GET.<stream>[.<subject>]``."""

    def __init__(self, context: Context, assets: Assets, api: ApiDispatcher) -> None:
        self._context = context
        self._assets = assets
        api.add_raw("DIRECT.GET", self.sink)

    def sink(
        self, subject: bytes, reply: bytes, headers: bytes, payload: bytes, origin: Origin | None
    ) -> bool:
        """Answer one request; False when there is no such stream to ask directly."""
        if not (headers or payload) and reply and self._answer_plain(subject, reply):
            return True
        tokens = subject.decode(errors="replace").split(".", 5)[4:]
        stream = self._find(tokens[0]) if tokens else None
        if stream is None:
            return False
        if reply:
            if required_level_too_high(headers, self._context.options.api_level):
                self._status(reply, status(names.REQUIRED_LEVEL))
            else:
                self._answer(stream, tokens[1] if len(tokens) > 1 else "", reply, payload)
        return True

    def _answer_plain(self, subject: bytes, reply: bytes) -> bool:
        """Answer with the last message of a subject, as whoever reads a key asks for it.

        False where there is more to it than that: then nothing has been said.
        """
        name, _, wanted = subject[len(DIRECT) :].partition(b".")
        stream = self._assets.streams.get(name.decode(errors="replace"))
        if stream is None or not (wanted and stream.config.allow_direct and subject.isascii()):
            return False
        store = stream.store
        try:
            stream.expire()
            if stream.removing.is_behind:
                return False  # it may have to leave before it is read
            sequence = store.last_of_each((wanted,))[0]
            message = store.get(sequence) if 0 < sequence <= store.durable_seq else None
        except StoreReadError:
            return False
        if message is None:
            return False
        self._context.bus.publish(reply, b"", headers_of(stream, message), message.payload)
        return True

    def _find(self, name: str) -> Stream | None:
        """The stream to ask, or while it is away a mirror of it that may answer instead."""
        stream = self._assets.streams.get(name)
        if stream is None:
            return self._assets.mirror_of(name)
        return stream if stream.config.allow_direct else None

    def _answer(self, stream: Stream, subject: str, reply: bytes, payload: bytes) -> None:
        if not payload.strip() and not subject:
            self._status(reply, status(names.EMPTY_REQUEST))
            return
        try:
            request = _read(payload)
            if subject:
                if request != DirectGetRequest(no_hdr=request.no_hdr):
                    self._status(reply, _BAD)
                    return
                request = DirectGetRequest(last_by_subj=subject, no_hdr=request.no_hdr)
            stream.expire()
            refusal = _check(request)
            if refusal is not None:
                self._status(reply, refusal)
            elif request.multi_last:
                self._send_last_of_many(stream, request, reply)
            elif request.batch > 0:
                self._send_batch(stream, request, reply)
            else:
                self._send_one(stream, request, reply)
        except DocumentError:
            self._status(reply, status(names.MALFORMED_REQUEST))
        except StoreReadError as error:  # it may come behind some of the messages asked for
            self._status(reply, unreadable(error))

    def _send_one(self, stream: Stream, request: DirectGetRequest, reply: bytes) -> None:
        message = find_unexpired(stream, request)
        if message is None:
            self._status(reply, NOT_FOUND)
            return
        headers = b"" if request.no_hdr else headers_of(stream, message)
        if message.sequence > stream.store.durable_seq:
            self._context.barrier.reply(reply, message.payload, headers=headers)
        else:
            self._context.bus.publish(reply, b"", headers, message.payload)

    def _send_batch(self, stream: Stream, request: DirectGetRequest, reply: bytes) -> None:
        scope = None
        if request.next_by_subj not in ("", ">"):
            raw = request.next_by_subj.encode()
            if not is_valid_pattern(raw):
                self._status(reply, _BAD)
                return
            scope = SubjectFilter([raw])
        store = stream.store
        position = max(request.seq, 1)
        if request.start_time is not None:
            position = store.sequence_at(parse_time(request.start_time))
        pending = store.count(scope, position)

        def pieces() -> Iterator[list[StoredRow]]:
            at = position
            while rows := store.rows(at, scope, _READ, _READ_BYTES, store.durable_seq):
                at = rows[-1][0] + 1
                yield _unexpired(stream, rows)

        self._stream_out(_Outgoing(stream, request, reply), pieces(), pending, NOT_FOUND, b"")

    def _send_last_of_many(self, stream: Stream, request: DirectGetRequest, reply: bytes) -> None:
        store = stream.store
        ceiling = min(request.up_to_seq or store.durable_seq, store.durable_seq)
        if request.up_to_time is not None:
            ceiling = min(store.sequence_at(parse_time(request.up_to_time)) - 1, ceiling)
        patterns = [pattern.encode() for pattern in request.multi_last]
        # All without wildcards, and valid, if one after the other they are one such subject.
        literal = is_valid_subject(b".".join(patterns))
        if not literal and not all(map(is_valid_pattern, patterns)):
            self._status(reply, _BAD)
            return
        sequences = sorted(set(store.last_of_each(patterns)) - {0}) if literal else []
        if not literal or (sequences and sequences[-1] > ceiling):
            sequences = last_of_each(store, SubjectFilter(patterns), 1, ceiling)
        sequences = sequences[bisect_left(sequences, request.seq) :]
        if len(sequences) > _SUBJECTS_MAX:
            self._status(reply, status(names.TOO_MANY_RESULTS))
            return
        pieces = (
            _unexpired(stream, _rows_at(store, sequences[at : at + _READ]))
            for at in range(0, len(sequences), _READ)
        )
        outgoing = _Outgoing(stream, request, reply)
        end = b"Nats-UpTo-Sequence: %d\r\n" % ceiling
        self._stream_out(outgoing, pieces, len(sequences), status(names.NO_RESULTS), end)

    def _stream_out(
        self,
        outgoing: _Outgoing,
        pieces: Iterator[list[StoredRow]],
        pending: int,
        none: bytes,
        end: bytes,
    ) -> None:
        """Send a batch and its end mark; ``none`` alone when there is no message."""
        stream, request, reply = outgoing
        target = self._context.bus.resolve(reply)
        if target is None:
            return
        with_headers_too = not request.no_hdr or bool(request.multi_last)
        left = request.batch or (len(request.multi_last) and _SUBJECTS_MAX)
        left_bytes, last_sent = request.max_bytes or _BATCH_BYTES, 0
        room = target.room * 3 // 4  # who asks for more than it can be sent is sent that much
        for rows in pieces:
            rows = rows[:left]
            blocks = [b""] * len(rows)
            if with_headers_too:
                blocks = _blocks(stream, rows, pending - 1, last_sent)
            sent = [(reply, b"", block, row[3]) for block, row in zip(blocks, rows, strict=True)]
            count, room, left_bytes = _fitting(rows, sent, room, left_bytes, not last_sent)
            target.send_many(sent[:count])
            if count:
                pending, left, last_sent = pending - count, left - count, rows[count - 1][0]
            if count < len(rows) or left <= 0 or left_bytes <= 0:
                break
        if not last_sent:
            target.send(reply, b"", none, b"")
            return
        added = b"Nats-Num-Pending: %d\r\nNats-Last-Sequence: %d\r\n" % (pending, last_sent)
        target.send(reply, b"", with_headers(_EOB, added + end), b"")

    def _status(self, reply: bytes, block: bytes) -> None:
        self._context.bus.publish(reply, b"", block, b"")


def _unexpired(stream: Stream, rows: list[StoredRow]) -> list[StoredRow]:
    """Without those that are to leave before somebody gets them. Raises StoreReadError."""
    if stream.take_out_expired(rows):
        return [row for row in rows if stream.store.holds(row[0])]
    return rows


def _rows_at(store: StreamStore, sequences: list[int]) -> list[StoredRow]:
    """The messages with these sequences. Raises StoreReadError."""
    found = store.rows_at(sequences, _READ_BYTES)
    if len(found) == len(sequences):
        return [*found.values()]
    each = (found.get(sequence) or store.get(sequence) for sequence in sequences)
    return [row for row in each if row is not None]


def _blocks(stream: Stream, rows: list[StoredRow], pending: int, before: int) -> list[bytes]:
    """The headers of messages in a batch: with how many are left, and what was sent before each.

    ``pending`` and ``before`` are those of the first.
    """
    place = _BATCHED.replace(b"%b", stream.name.encode().replace(b"%", b"%%"), 1)
    befores = chain((before,), [row[0] for row in rows])
    lines = [
        place % (subject, sequence, format_time(time_ns).encode(), left, last)
        for (sequence, subject, _, _, time_ns), left, last in zip(rows, count(pending, -1), befores)
    ]
    return with_own_places([row[2] for row in rows], lines, _BATCHED)


def _fitting(
    rows: list[StoredRow], sent: list[_Message], room: int, left_bytes: int, is_first: bool
) -> tuple[int, int, int]:
    """How many of these messages are sent; what is left of the room and of the bytes asked for.

    The first of all is sent in any case.
    """
    for at, (row, (reply, _, block, payload)) in enumerate(zip(rows, sent, strict=True)):
        room -= len(reply) + len(block) + len(payload) + _FRAME_BYTES
        if room < 0 and not (is_first and at == 0):
            return at, room, left_bytes
        left_bytes -= len(row[1]) + len(row[2]) + len(payload)
        if left_bytes <= 0:
            return at + 1, room, left_bytes
    return len(rows), room, left_bytes


def last_of_each(store: StreamStore, scope: SubjectFilter, first: int, ceiling: int) -> list[int]:
    """The last sequence in ``[first, ceiling]`` of each matching subject, in order."""
    if ceiling >= store.last_seq:
        lasts = store.lasts(scope)
        return lasts[bisect_left(lasts, first) :]
    found = []
    for subject, state in store.subjects(scope):
        sequence = state.last_seq
        if sequence > ceiling:
            sequence = _last_at_or_below(
                store, SubjectFilter.of_stored(subject), state.first_seq, ceiling
            )
        if sequence >= first:
            found.append(sequence)
    return sorted(found)


def _last_at_or_below(store: StreamStore, scope: SubjectFilter, low: int, ceiling: int) -> int:
    """The last matching sequence up to ``ceiling``, or 0: bisects the counts, reads nothing."""
    beyond = store.count(scope, ceiling + 1)
    if low > ceiling or store.count(scope, low) == beyond:
        return 0
    high = ceiling
    while low < high:
        middle = (low + high + 1) // 2
        if store.count(scope, middle) > beyond:
            low = middle
        else:
            high = middle - 1
    return low


class _Outgoing(NamedTuple):
    """A batch on its way: whose messages, what was asked, where to."""

    stream: Stream
    request: DirectGetRequest
    reply: bytes


def _read(payload: bytes) -> DirectGetRequest:
    if not payload.strip():
        return DirectGetRequest()
    check_request_size(payload)
    return with_checked_texts(check_ranges(decode(payload, DirectGetRequest)), payload)


def _check(request: DirectGetRequest) -> bytes | None:
    """The status that refuses a request, or None when it can be answered."""
    conflicting = (
        (request.last_by_subj and (request.seq or request.next_by_subj or request.batch))
        or (request.start_time and (request.seq or request.last_by_subj))
        or (request.multi_last and (request.last_by_subj or request.next_by_subj))
        or (request.up_to_seq and request.up_to_time)
        or request.batch < 0
    )
    if conflicting:
        return _BAD
    if len(request.multi_last) > LAST_PATTERNS_MAX:
        return status(names.TOO_MANY_RESULTS)
    chosen = request.seq or request.last_by_subj or request.next_by_subj or request.multi_last
    if not chosen and not request.start_time:
        return status(names.EMPTY_REQUEST)
    return None


def headers_of(stream: Stream, message: StoredMessage) -> bytes:
    """The headers of a message in an answer that is no batch."""
    sequence, subject, headers, _payload, timestamp_ns = message
    place = stream.name.encode(), subject, sequence, format_time(timestamp_ns).encode()
    return with_place(headers, PLACE % place, PLACE)


class DirectRuns:
    """Takes publishes to the API of one account; those it does not answer it gives back.

    Attributes:
        answered: how many requests it has answered.
    """

    def __init__(self, context: Context, assets: Assets) -> None:
        self._bus = context.bus
        self._assets = assets
        self.answered = 0

    def take(self, publishes: Sequence[Frame], origin: Origin | None) -> Sequence[Frame]:
        """Answer the requests for last messages at the front; returns what is left."""
        name = publishes[0][1][len(DIRECT) :].partition(b".")[0]
        stream = self._assets.streams.get(name.decode(errors="replace"))
        if origin is None or stream is None or not stream.config.allow_direct:
            return publishes
        asked = _asked(publishes[:RUN_MAX], b"%b%b." % (DIRECT, name))
        if len(asked) < RUN_MIN:
            return publishes
        try:
            stream.expire()
            if stream.removing.is_behind:
                return publishes  # some may have to leave before they are read
            found = _answers(stream, asked)
        except StoreError:
            return publishes
        self._send([frame[2] for frame in publishes[: len(found)]], found)
        self.answered += len(found)
        return publishes[len(found) :]

    def _send(self, replies: Sequence[bytes], found: Sequence[tuple[bytes, bytes]]) -> None:
        """Send each its answer: those for one receiver that stand together in one go."""
        resolve, same, target = self._bus.resolve, b"", None
        batches: list[tuple[Target, list[tuple[bytes, bytes, bytes, bytes]]]] = []
        for reply, (block, payload) in zip(replies, found, strict=True):
            if reply != same:
                same, target = reply, resolve(reply)
            if target is not None:
                if not batches or batches[-1][0] is not target:
                    batches.append((target, []))
                batches[-1][1].append((reply, b"", block, payload))
        for target, messages in batches:
            target.send_many(messages)


def _asked(publishes: Sequence[Frame], start: bytes) -> list[bytes]:
    """The subjects whose last messages the requests at the front are for."""
    subjects: list[bytes] = []
    cut = len(start)
    for _op, subject, reply, headers, payload in publishes:
        if payload or headers or not (reply and subject.startswith(start) and subject.isascii()):
            break
        subjects.append(subject[cut:])
    return subjects


def _answers(stream: Stream, subjects: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
    """Headers and payloads of the answers, up to the first that has to be looked at by itself."""
    store, left = stream.store, RUN_BYTES
    durable, lasts = store.durable_seq, store.last_of_each(subjects)
    rows = store.rows_at(lasts, RUN_BYTES)
    place = PLACE.replace(b"%b", stream.name.encode().replace(b"%", b"%%"), 1)
    bare = with_place(b"", place)
    answers: list[tuple[bytes, bytes]] = []
    for subject, sequence in zip(subjects, lasts, strict=True):
        if not sequence:
            if not is_valid_subject(subject):
                break
            answers.append((NOT_FOUND, b""))
            continue
        row = rows.get(sequence) if sequence <= durable else None
        if row is None:
            break
        _sequence, name, headers, payload, time_ns = row
        left -= len(headers) + len(payload)
        if left < 0:
            break
        said = name, sequence, format_time(time_ns).encode()
        answers.append(
            (with_place(headers, place % said, PLACE) if headers else bare % said, payload)
        )
    return answers
