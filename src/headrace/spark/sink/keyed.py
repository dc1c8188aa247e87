"""The latest value of each key: each is compared with what is stored, and stored over nothing else."""

from __future__ import annotations

import base64
from collections.abc import Callable
from itertools import islice
from typing import Final, NamedTuple

import msgspec

from ...api import base
from ...api.envelope import decode_pub_ack, decode_response
from ...api.messages import DirectGetRequest, GetMessageRequest, GetMessageResponse
from ...api.names import EXPECTED_LAST_SUBJECT_SEQ
from ...errors import AuthorizationError, JetStreamApiError, NoRespondersError, RequestTimeoutError
from ...wire.headers import says_nobody
from ..links.link import Link, Reply
from ..links.outages import ServerPatience
from .dead_letters import BadRows
from .last_of_key import LastOfKey, Latest
from .markers import MESSAGE_NOT_FOUND, WRONG_LAST, PlanId
from .options import ACCEPTED
from .rows import BadRow, digest_of
from .task import Links
from .versions import RowVersion, Verdict, Version, Writing, judge, read_version
from .window import REFUSED_ROWS

SUBJECTS_MAX: Final = 1_000
"""Of one request; a server takes 1,024."""
_SEQUENCE: Final = b"\r\nNats-Sequence: "
_SUBJECT: Final = b"\r\nNats-Subject: "
_ABSENT: Final = b"NATS/1.0 404"
_END: Final = b"NATS/1.0 204"
_STATUS: Final = b"NATS/1.0 "
_ALL: Final = b"Nats-Num-Pending: 0\r\n"


class Stored(msgspec.Struct, frozen=True, gc=False):
    """What is stored on a subject: its sequence, 0 for nothing, and its header block."""

    sequence: int
    headers: bytes


NOTHING: Final = Stored(0, b"")


class RefusedError(Exception):
    """The server does not answer for many subjects at once; it is no failure."""


class Asked:
    """A request that is under way; ``take`` its answer before another one is made on the link.

    Raises, from all methods: as ``Link``.
    """

    def __init__(self, link: Link, stream: str, subjects: list[bytes]) -> None:
        self._link = link
        self._subjects = subjects
        names = tuple(subject.decode() for subject in subjects)
        body = base.encode(DirectGetRequest(multi_last=names, batch=len(names)))
        inbox, self._sid = link.subscribe()
        link.publish(link.api("DIRECT", "GET", stream), body, inbox)

    def take(self, quiet_s: float) -> list[Stored]:
        """What is stored on each of the subjects.

        Raises:
            RefusedError: the server does not answer so, or not all of it.
            RequestTimeoutError: nothing came for so long.
        """
        try:
            return self._take(quiet_s)
        finally:
            if not self._link.closed:
                self._link.unsubscribe(self._sid)

    def _take(self, quiet_s: float) -> list[Stored]:
        found: dict[bytes, Stored] = {}
        while True:
            frames = self._link.poll(quiet_s)
            if not frames:
                raise RequestTimeoutError(f"no direct answer within {quiet_s:g} s")
            for _, _, sid, _, headers, payload in frames:
                if sid == self._sid and headers.startswith(_STATUS):
                    return self._whole(headers, payload, found)
                if sid == self._sid:
                    subject, sequence = _place_of(headers)
                    found[subject] = Stored(sequence, headers)

    def _whole(self, end: bytes, payload: bytes, found: dict[bytes, Stored]) -> list[Stored]:
        if says_nobody(end, payload):
            raise NoRespondersError("nobody answers direct gets of the stream")
        if end.startswith(_ABSENT):
            found = {}
        elif not end.startswith(_END) or _ALL not in end:
            raise RefusedError(end.split(b"\r\n", 1)[0].decode(errors="replace"))
        return [found.get(subject, NOTHING) for subject in self._subjects]


def stored_of(headers: bytes) -> Stored:
    """Of the header block of a direct answer that is a message."""
    return Stored(_place_of(headers)[1], headers)


def _place_of(headers: bytes) -> tuple[bytes, int]:
    """Subject and sequence of a direct answer that is a message."""
    at = headers.rfind(_SUBJECT)
    begin = at + len(_SUBJECT)
    end = headers.find(b"\r\n", begin)
    if at < 0 or not headers.startswith(_SEQUENCE, end):  # as servers write them
        return _behind(headers, _SUBJECT), int(_behind(headers, _SEQUENCE))
    after = end + len(_SEQUENCE)
    return headers[begin:end], int(headers[after : headers.index(b"\r\n", after)])


def _behind(headers: bytes, name: bytes) -> bytes:
    """The value of a header that the server has added: its lines are behind the publisher's, who may have
    written the same names."""
    at = headers.rfind(name)
    if at < 0:
        said = headers.split(b"\r\n", 1)[0].decode(errors="replace")
        raise NoRespondersError(f"the server answered a direct get with {said}")
    return headers[at + len(name) : headers.index(b"\r\n", at + len(name))]


class LastValues:
    """Asks for what a stream has stored last.

    Args:
        direct: the stream answers direct gets.
    """

    def __init__(self, stream: str, quiet_s: float, *, direct: bool) -> None:
        self._stream = stream
        self._quiet_s = quiet_s
        self._direct = direct
        self._many = direct

    def ask(self, link: Link, subjects: list[bytes]) -> Asked | None:
        """Ask for these, beside what else is done with the link; None where that is not to be had."""
        return Asked(link, self._stream, subjects) if self._many and subjects else None

    def take(self, asked: Asked) -> list[Stored] | None:
        """What is stored on each; None if the server does not answer so: ``read`` then."""
        try:
            return asked.take(self._quiet_s)
        except RefusedError:
            self._many = False
            return None

    def read(self, link: Link, subjects: list[bytes], *, exact: bool) -> list[Stored] | None:
        """What is stored on each of these subjects.

        Args:
            exact: as the leader has it; a copy that lags may answer a direct get.

        Returns:
            None if this user may not ask so: ask again, on another connection.
        """
        if exact or not self._direct:
            return [_of_leader(each) for each in link.request_many(self._of_each(link, subjects))]
        try:
            if (asked := self.ask(link, subjects)) is not None and (
                found := self.take(asked)
            ) is not None:
                return found
            get = link.api("DIRECT", "GET", self._stream)
            each = [(f"{get}.{subject.decode()}", b"") for subject in subjects]
            return [_of_direct(reply) for reply in link.request_many(each)]
        except (AuthorizationError, NoRespondersError):
            # This user may not, or the stream does so no longer. First less is asked for, then the leader.
            self._direct, self._many = self._many, False
            return None

    def _of_each(self, link: Link, subjects: list[bytes]) -> list[tuple[str, bytes]]:
        get = link.api("STREAM", "MSG", "GET", self._stream)
        wanted = [GetMessageRequest(last_by_subj=subject.decode()) for subject in subjects]
        return [(get, base.encode(each)) for each in wanted]


def _of_direct(reply: Reply) -> Stored:
    return NOTHING if reply.headers.startswith(_ABSENT) else stored_of(reply.headers)


def _of_leader(reply: Reply) -> Stored:
    try:
        message = decode_response(reply.payload, GetMessageResponse).message
    except JetStreamApiError as error:
        if error.err_code != MESSAGE_NOT_FOUND:
            raise
        return NOTHING
    return Stored(message.seq, base64.b64decode(message.hdrs))


HELD_BYTES_MAX: Final = 64 * 1024 * 1024  # of values that a task holds before it stores them
PORTION: Final = 500  # keys that are asked for together, and then stored together,
PORTION_BYTES: Final = (
    8 * 1024 * 1024
)  # of at most so many bytes, as they are and as they are stored


class Writer(NamedTuple):
    """Who writes: a partition of a run of a batch of a sink. ``exactly``: see ``versions.judge``; ``by``: see
    ``Version``."""

    sink: str
    batch: int
    plan: PlanId
    partition: int
    exactly: bool
    by: str = ""


class KeyedPublisher:
    """Stores the last value of each key of a task.

    Args:
        direct: the stream answers direct gets.
        quiet_s: for how long nothing may come before the connection is given up.
        mean_bytes: about how large a stored value is.
        patience: how long a server may be away.

    Attributes:
        found_stored: keys whose value an earlier run, or a twin of this task, had stored.
        outrun: keys of which another sink has stored a value since this run of the batch began; they keep it.
        late: keys that keep a value which is later by the columns of the order.
    """

    def __init__(
        self,
        stream: str,
        writer: Writer,
        latest: Latest,
        links: Links,
        patience: ServerPatience,
        bad_rows: BadRows,
        *,
        direct: bool,
        quiet_s: float,
        mean_bytes: int,
    ) -> None:
        self._stream = stream
        self._writer = writer
        self._latest = latest
        self._links = links
        self._patience = patience
        self._bad_rows = bad_rows
        self._good = b'{"stream":"%b"' % stream.encode()
        self._last = LastValues(stream, quiet_s, direct=direct)
        self._lines = Writing(writer.sink, writer.batch, writer.plan, writer.partition, writer.by)
        self._keys_max = max(1, min(PORTION, PORTION_BYTES // max(1, mean_bytes)))
        self._refused = 0
        self.found_stored = 0
        self.outrun = 0
        self.late = 0

    @property
    def rows(self) -> int:
        """How many rows there were, but for the bad ones."""
        return self._latest.rows - self._refused

    def store(self, *, at_end: bool) -> None:
        """Store what is held, if it is much or there is no more to come.

        Raises:
            FencedError: this task must not write on.
        """
        if not at_end and self._latest.bytes < HELD_BYTES_MAX:
            return
        portions = _portions(self._latest.take(), self._keys_max)
        known: list[Stored] | None = None
        for at, portion in enumerate(portions):
            following = portions[at + 1] if at + 1 < len(portions) else {}
            known = self._store(portion, known, list(following))

    def _store(
        self, left: dict[bytes, LastOfKey], known: list[Stored] | None, ahead: list[bytes]
    ) -> list[Stored] | None:
        """Store these; what somebody else has stored meanwhile is compared again.

        Args:
            known: what is stored of them, where that was asked for before.
            ahead: what is to be stored next. What is stored of that is asked for together with the first
                writes, and returned; None if that went wrong.
        """
        refused: list[BadRow] = []
        found: list[Stored] | None = None
        # A copy that lags may answer a direct get, so what is asked again is asked of the leader.
        is_first = True
        while left:

            def next_round(exact: bool = not is_first) -> None:
                nonlocal found, known, ahead
                asked, known = known, None  # neither is taken for true a second time
                also, ahead = ahead, []
                found = self._round(self._links.get(), left, refused, exact, asked, also) or found

            self._persist(next_round)
            self._patience.restart()
            is_first = False
        if refused:
            self._refused += len(refused)
            self._bad_rows.take(refused)
        return found

    def _round(
        self,
        link: Link,
        left: dict[bytes, LastOfKey],
        refused: list[BadRow],
        exact: bool,
        known: list[Stored] | None,
        ahead: list[bytes],
    ) -> list[Stored] | None:
        """Compare each with what is stored, and store those that are later; takes out what is done."""
        subjects = list(left)
        while known is None:
            known = self._last.read(link, subjects, exact=exact)
            link = self._links.get()
        # Asked early: a server that reads the question by itself takes the writes together.
        asked = self._last.ask(link, ahead)
        requests, blocks, sent = [], [], []
        is_later, line_of = self._lines.is_later, self._lines.line
        for subject, stored in zip(subjects, known, strict=True):
            entry = left[subject]
            digest = digest_of(subject, entry.lines, entry.payload)
            if not (is_later(stored.headers) or self._is_to_be_stored(stored, entry, digest)):
                del left[subject]
                continue
            sent.append(subject)
            requests.append((subject.decode(), entry.payload))
            line = line_of(entry.order, entry.row, digest)
            blocks.append(
                b"NATS/1.0\r\n%b: %d\r\n%b%b\r\n" % (_EXPECTED, stored.sequence, line, entry.lines)
            )
        replies = link.request_many(requests, blocks) if requests else []
        for subject, reply in zip(sent, replies, strict=True):
            if reply.payload.startswith(self._good) or self._is_done(
                subject, left[subject], reply, refused
            ):
                del left[subject]
        return self._last.take(asked) if asked is not None else None

    def _is_to_be_stored(self, stored: Stored, entry: LastOfKey, digest: str) -> bool:
        writer = self._writer
        place = RowVersion(entry.order, writer.partition, entry.row)
        mine = Version(writer.sink, writer.batch, writer.plan, place, digest, writer.by)
        verdict = judge(read_version(stored.headers), mine, exactly=writer.exactly)
        self.found_stored += verdict is Verdict.IS_STORED
        self.outrun += verdict is Verdict.OUTRUN
        self.late += verdict is Verdict.LATE
        return verdict is Verdict.STORE

    def _is_done(
        self, subject: bytes, entry: LastOfKey, reply: Reply, refused: list[BadRow]
    ) -> bool:
        """Read an answer that is no ordinary acknowledgement: whether there is nothing left to do."""
        try:
            ack = decode_pub_ack(reply.payload)
        except JetStreamApiError as error:
            if error.err_code in WRONG_LAST:
                return False
            if error.err_code not in REFUSED_ROWS:
                raise
            bad = BadRow(str(entry.row), subject, entry.lines, entry.payload, str(error))
            refused.append(bad)
            return True
        if ack.stream != self._stream:
            raise ACCEPTED.error(
                f"{subject.decode()!r} was stored by stream {ack.stream!r}, not by {self._stream!r}"
            )
        return True

    def _persist(self, action: Callable[[], None]) -> None:
        """Do it, and again on a new connection while the server may come back."""
        self._patience.persist(action, self._links.drop)


_EXPECTED: Final = EXPECTED_LAST_SUBJECT_SEQ.encode()


def _portions(held: dict[bytes, LastOfKey], keys_max: int) -> list[dict[bytes, LastOfKey]]:
    """Cut it into portions of so many keys, and not too many bytes."""
    portions: list[dict[bytes, LastOfKey]] = []
    entries = iter(held.items())
    while portion := dict(islice(entries, keys_max)):
        if sum([len(each.lines) + len(each.payload) for each in portion.values()]) > PORTION_BYTES:
            portions += _cut(portion)
        else:
            portions.append(portion)
    return portions


def _cut(held: dict[bytes, LastOfKey]) -> list[dict[bytes, LastOfKey]]:
    """Cut it into portions of not too many bytes, each of one entry at least."""
    portions: list[dict[bytes, LastOfKey]] = []
    left = 0
    for subject, entry in held.items():
        left -= entry.size
        if left < 0:
            portions.append({})
            left = PORTION_BYTES - entry.size
        portions[-1][subject] = entry
    return portions
