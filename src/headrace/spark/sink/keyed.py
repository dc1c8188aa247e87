"""The latest value of each key: each is compared with what is stored, and stored over nothing else."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Final, NamedTuple

from ...api.envelope import decode_pub_ack
from ...api.names import EXPECTED_LAST_SUBJECT_SEQ
from ...errors import JetStreamApiError
from ..links.link import Link, Reply
from ..links.outages import ServerPatience
from .dead_letters import BadRows
from .last_of_key import LastOfKey, Latest
from .links import Links
from .marker_store import WRONG_LAST
from .markers import PlanId
from .options import ACCEPTED
from .rows import BadRow, digest_of
from .stored_values import LastValues, Stored
from .versions import RowVersion, Verdict, Version, Writing, judge, read_version
from .window import REFUSED_ROWS

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
