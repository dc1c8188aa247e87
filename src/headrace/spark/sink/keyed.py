"""The latest value of each key: each is compared with what is stored, and stored over nothing else."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Final, NamedTuple

from ...api import base
from ...api.envelope import decode_pub_ack, decode_response
from ...api.messages import GetMessageRequest, GetMessageResponse
from ...api.names import EXPECTED_LAST_SUBJECT_SEQ
from ...errors import AuthorizationError, JetStreamApiError, NoRespondersError
from ...wire.headers import EMPTY_BLOCK
from ..link import Link, Reply
from ..patience import Patience
from .dead_letters import BadRows
from .latest import Entry, Latest
from .links import Links
from .marker_store import MESSAGE_NOT_FOUND, WRONG_LAST
from .markers import PlanId
from .options import ACCEPTED
from .rows import BadRow, digest_of
from .versions import Place, Verdict, Version, judge, read_version
from .window import REFUSED_ROWS

HELD_BYTES_MAX: Final = 64 * 1024 * 1024  # of values that a task holds before it stores them
PORTION: Final = 500  # keys that are asked for together, and then stored together,
PORTION_BYTES: Final = (
    8 * 1024 * 1024
)  # of at most so many bytes, as they are and as they are stored
_SEQUENCE: Final = b"\r\nNats-Sequence: "
_ABSENT: Final = b"NATS/1.0 404"


class Writer(NamedTuple):
    """Who writes: a partition of a run of a batch of a sink. ``exactly``: see ``versions.judge``."""

    sink: str
    batch: int
    plan: PlanId
    partition: int
    exactly: bool


class Stored(NamedTuple):
    """What is stored of a key: its sequence, 0 for nothing, and what the value says of itself."""

    sequence: int
    version: Version | None


class KeyedPublisher:
    """Stores the last value of each key of a task.

    Args:
        direct: the stream answers direct gets.
        mean_bytes: about how large a stored value is.
        patience: how long a server may be away.

    Attributes:
        found_stored: keys whose value an earlier run, or a twin of this task, had stored.
        outrun: keys of which another sink has stored a value since this run of the batch began; they keep it.
    """

    def __init__(
        self,
        stream: str,
        writer: Writer,
        latest: Latest,
        links: Links,
        patience: Patience,
        bad_rows: BadRows,
        *,
        direct: bool,
        mean_bytes: int,
    ) -> None:
        self._stream = stream
        self._writer = writer
        self._latest = latest
        self._links = links
        self._patience = patience
        self._bad_rows = bad_rows
        self._direct = direct
        self._keys_max = max(1, min(PORTION, PORTION_BYTES // max(1, mean_bytes)))
        self._refused = 0
        self.found_stored = 0
        self.outrun = 0

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
        self, left: dict[bytes, Entry], known: list[Stored] | None, ahead: list[bytes]
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
        direct = self._direct
        while left:

            def next_round(direct: bool = direct) -> None:
                nonlocal found, known, ahead
                asked, known = known, None  # neither is taken for true a second time
                also, ahead = ahead, []
                found = self._round(self._links.get(), left, refused, direct, asked, also) or found

            self._persist(next_round)
            self._patience.restart()
            direct = False
        if refused:
            self._refused += len(refused)
            self._bad_rows.take(refused)
        return found

    def _round(
        self,
        link: Link,
        left: dict[bytes, Entry],
        refused: list[BadRow],
        direct: bool,
        known: list[Stored] | None,
        ahead: list[bytes],
    ) -> list[Stored] | None:
        """Compare each with what is stored, and store those that are later; takes out what is done."""
        subjects = list(left)
        requests, blocks, asked = [], [], []
        stored_now = self._read(link, subjects, direct) if known is None else known
        for subject, stored in zip(subjects, stored_now, strict=True):
            entry = left[subject]
            mine = self._version(subject, entry)
            verdict = judge(stored.version, mine, exactly=self._writer.exactly)
            if verdict is not Verdict.STORE:
                self.found_stored += verdict is Verdict.IS_STORED
                self.outrun += verdict is Verdict.OUTRUN
                del left[subject]
                continue
            asked.append(subject)
            requests.append((subject.decode(), entry.payload))
            blocks.append(
                b"NATS/1.0\r\n%b: %d\r\n%b%b\r\n"
                % (_EXPECTED, stored.sequence, mine.encode(), entry.lines)
            )
        reading = self._direct
        requests += self._questions(link, ahead, reading)
        blocks += [EMPTY_BLOCK] * len(ahead)
        replies = link.request_many(requests, blocks) if requests else []
        for subject, reply in zip(asked, replies, strict=False):
            try:
                ack = decode_pub_ack(reply.payload)
            except JetStreamApiError as error:
                if error.err_code in WRONG_LAST:
                    continue
                if error.err_code not in REFUSED_ROWS:
                    raise
                entry = left.pop(subject)
                refused.append(
                    BadRow(str(entry.row), subject, entry.lines, entry.payload, str(error))
                )
                continue
            if ack.stream != self._stream:
                raise ACCEPTED.error(
                    f"{subject.decode()!r} was stored by stream {ack.stream!r}, not by {self._stream!r}"
                )
            del left[subject]
        answer = _of_direct if reading else _of_leader
        return [answer(reply) for reply in replies[len(asked) :]] if ahead else None

    def _version(self, subject: bytes, entry: Entry) -> Version:
        writer = self._writer
        place = Place(entry.order, writer.partition, entry.row)
        digest = digest_of(subject, entry.lines, entry.payload)
        return Version(writer.sink, writer.batch, writer.plan, place, digest)

    # -- what is stored

    def _questions(
        self, link: Link, subjects: list[bytes], direct: bool
    ) -> list[tuple[str, bytes]]:
        """Requests for the last message of each subject."""
        if direct:
            get = link.api("DIRECT", "GET", self._stream)
            return [(f"{get}.{subject.decode()}", b"") for subject in subjects]
        get = link.api("STREAM", "MSG", "GET", self._stream)
        wanted = [GetMessageRequest(last_by_subj=subject.decode()) for subject in subjects]
        return [(get, base.encode(each)) for each in wanted]

    def _read(self, link: Link, subjects: list[bytes], direct: bool) -> list[Stored]:
        if direct and self._direct:
            try:
                found = link.request_many(self._questions(link, subjects, True))
                return [_of_direct(reply) for reply in found]
            except (AuthorizationError, NoRespondersError):
                self._direct = False  # this user may not, or the stream does so no longer
                link = self._links.get()
        found = link.request_many(self._questions(link, subjects, False))
        return [_of_leader(reply) for reply in found]

    def _persist(self, action: Callable[[], None]) -> None:
        """Do it, and again on a new connection while the server may come back."""
        self._patience.persist(action, self._links.drop)


_EXPECTED: Final = EXPECTED_LAST_SUBJECT_SEQ.encode()


def _of_direct(reply: Reply) -> Stored:
    block = reply.headers
    if block.startswith(_ABSENT):
        return Stored(0, None)
    # The server's lines are behind the publisher's, who may have written the same names.
    at = block.rfind(_SEQUENCE)
    if at < 0:
        said = block.split(b"\r\n", 1)[0].decode(errors="replace")
        raise NoRespondersError(f"the server answered a direct get with {said}")
    digits = block[at + len(_SEQUENCE) :].split(b"\r\n", 1)[0]
    return Stored(int(digits), read_version(block))


def _of_leader(reply: Reply) -> Stored:
    try:
        message = decode_response(reply.payload, GetMessageResponse).message
    except JetStreamApiError as error:
        if error.err_code != MESSAGE_NOT_FOUND:
            raise
        return Stored(0, None)
    return Stored(message.seq, read_version(base64.b64decode(message.hdrs)))


def _portions(held: dict[bytes, Entry], keys_max: int) -> list[dict[bytes, Entry]]:
    """The same in portions of so many keys, and not too many bytes."""
    portions: list[dict[bytes, Entry]] = []
    size = PORTION_BYTES
    for subject, entry in held.items():
        if size + entry.size > PORTION_BYTES or len(portions[-1]) >= keys_max:
            portions.append({})
            size = 0
        portions[-1][subject] = entry
        size += entry.size
    return portions
