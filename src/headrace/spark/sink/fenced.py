"""The rows of one task on their way to the stream, and their hash. Pure."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from typing import Final, NamedTuple

from ...api.envelope import decode_pub_ack
from ...api.errors import Errors
from ...api.messages import PubAck
from ...api.names import EXPECTED_LAST_SUBJECT_SEQ, EXPECTED_LAST_SUBJECT_SEQ_SUBJECT
from ...errors import HeadraceError, JetStreamApiError, NoRespondersError, RequestTimeoutError
from ...wire.headers import says_nobody
from ..links.link import Link
from ..links.outages import ServerPatience, may_pass
from .markers import (
    WRONG_LAST,
    FoundMarkers,
    Marker,
    MarkerStore,
    Plan,
    PlanChangedError,
    PlanId,
    StreamResetError,
    next_plan,
    not_confirmed,
)
from .options import ACCEPTED
from .rows import Rows
from .task import Links

_DIGEST_BYTES: Final = 16


class Chunk(NamedTuple):
    """Rows to be stored together; with them the partition has ``total`` rows and this hash."""

    rows: Rows
    total: int
    digest: str
    chain: hashlib.blake2b


class Tally:
    """Rows that are not known to be stored, after ``stored`` ones that are.

    What the stream has of this batch already is compared, row by row in the hash, and passed over.

    Args:
        what: the partition and batch, for errors.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._rows = Rows([], [], [])
        self._chain = hashlib.blake2b(digest_size=_DIGEST_BYTES)
        self._ahead: Marker | None = None
        self._all = 0  # how many rows there were when the batch ran before, once that is known
        self.stored = 0
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def digest(self) -> str:
        """The hash of the stored rows."""
        return self._chain.hexdigest()

    def add(self, rows: Rows) -> None:
        """Take in the next rows of the partition. Raises PlanChangedError if there must be none."""
        if self._all and len(rows):
            raise self._changed(f"it had {self._all} rows, and now has more")
        for mine, new in zip(self._rows, rows, strict=True):
            mine.extend(new)
        self.bytes += sum(map(len, rows.payloads))

    def expect(self, marker: Marker) -> None:
        """The stream has so many rows of this partition, those stored so far among them."""
        self._ahead = marker

    def compare(self) -> Marker | None:
        """Pass over rows that the stream has. Returns its marker once they all have come and are equal.

        Raises:
            PlanChangedError: they are not.
        """
        ahead = self._ahead
        if ahead is None:
            return None
        passed = min(ahead.rows - self.stored, len(self))
        self._drop(passed, self.chunk(passed))
        if self.stored < ahead.rows:
            return None
        if self.digest != ahead.digest:
            raise self._changed(f"its first {ahead.rows} rows are not those that were stored")
        self._ahead = None
        if ahead.is_last:
            self._all = ahead.rows
            if len(self):
                raise self._changed(f"it had {ahead.rows} rows, and now has more")
        return ahead

    def end(self) -> None:
        """There are no more rows. Raises PlanChangedError if the stream has more of them."""
        if self._ahead is not None:
            raise self._changed(
                f"the stream has {self._ahead.rows} rows of it, and now it has {self.stored}"
            )

    def chunk(self, count: int) -> Chunk:
        """The next rows."""
        rows = Rows(*(column[:count] for column in self._rows))
        chain = self._chain.copy()
        chain.update(
            b"".join(
                [
                    b"%b %d %d\n%b%b" % (subject, len(lines), len(payload), lines, payload)
                    for subject, lines, payload in zip(*rows, strict=True)
                ]
            )
        )
        return Chunk(rows, self.stored + count, chain.hexdigest(), chain)

    def is_stored(self, chunk: Chunk) -> None:
        """The stream has confirmed the next rows."""
        self._drop(len(chunk.rows), chunk)

    def _drop(self, count: int, chunk: Chunk) -> None:
        self._chain = chunk.chain
        self.stored = chunk.total
        self.bytes -= sum(map(len, chunk.rows.payloads))
        for column in self._rows:
            del column[:count]

    def _changed(self, how: str) -> PlanChangedError:
        return PlanChangedError(
            f"jetstream sink: {self._what} runs again with other rows: {how}. Nothing more is written. A "
            "batch must have the same rows in the same partitions and order when it runs again: go back to "
            "the former options, code and data until it is through, or begin with a new checkpoint and a "
            "new sinkId"
        )


BYTES_MAX: Final = 4 * 1024 * 1024  # payloads of an atomic batch, but for a single larger row
_NEVER: Final = PlanId(0, "")
_TRANSIENT: Final = frozenset(
    {Errors.BATCH_INCOMPLETE.err_code, Errors.BATCH_TOO_MANY.err_code}
)  # the server forgot the batch, or has too many of them
_DUPLICATE_ID: Final = Errors.BATCH_DUPLICATE_ID.err_code


class _TryAgainError(HeadraceError):
    """What may go away by itself, though no connection broke."""


class NotComparedError(HeadraceError):
    """Partitions that an earlier run had written are not there to be compared."""


class _InFlight(NamedTuple):
    chunk: Chunk
    to: bytes  # where its answer goes


class Writer(NamedTuple):
    """Who writes: a partition of a run of a batch of a sink."""

    sink: str
    batch: int
    plan: PlanId
    partition: int

    def __str__(self) -> str:
        return f"partition {self.partition} of batch {self.batch} of sink {self.sink!r}"


class FencedPublisher:
    """Stores the rows of one task, each once, however often and wherever the task runs.

    One atomic batch is on its way while the next rows come from Spark.

    Args:
        epoch: when the stream was created: it must stay the same one.
        rows_max: rows of an atomic batch.
        quiet_s: how long to wait for an answer before the connection is given up.
        wait_s: how long a batch that runs again waits for another one of its partitions to be compared.
        patience: how long a server may be away.
    """

    def __init__(
        self,
        writer: Writer,
        store: MarkerStore,
        links: Links,
        patience: ServerPatience,
        *,
        epoch: str,
        rows_max: int,
        quiet_s: float,
        wait_s: float,
    ) -> None:
        self._writer = writer
        self._store = store
        self._links = links
        self._patience = patience
        self._epoch = epoch
        self._rows_max = rows_max
        self._quiet_s = quiet_s
        self._wait_s = wait_s
        self._tally = Tally(str(writer))
        self._plan = Plan(-1, _NEVER, False)
        self._fence = 0  # the sequence of the partition's marker
        self._is_begun = False
        self._are_others_confirmed = False
        self._in_flight: _InFlight | None = None
        self._link: Link | None = None
        self._inbox = self._sid = b""
        self._nonce = secrets.token_hex(8).encode()
        self._batches = 0
        self.found_stored = 0  # rows that an earlier run, or a twin of this task, had stored

    @property
    def stored(self) -> int:
        """How many rows the stream has."""
        return self._tally.stored

    def begin(self) -> None:
        """Say that this run of the batch writes now.

        Raises:
            FencedError: a later one does.
        """
        self._persist(self._ready)

    def add(self, rows: Rows) -> None:
        """Store rows, or hold them until there are enough for an atomic batch.

        Raises:
            FencedError, PlanChangedError, StreamResetError: this task must not write on.
        """
        self._tally.add(rows)
        while self._is_full():
            self._persist(lambda: self._step(at_end=False))

    def finish(self) -> None:
        """There are no more rows; store the rest. Raises as ``add``."""
        self._persist(lambda: self._step(at_end=True))
        while len(self._tally):
            self._persist(lambda: self._step(at_end=True))
        self._tally.end()
        self._links.end(self._sid)

    # -- steps

    def _is_full(self) -> bool:
        on_its_way = len(self._in_flight.chunk.rows) if self._in_flight is not None else 0
        return len(self._tally) - on_its_way > self._rows_max or (
            self._tally.bytes > 2 * BYTES_MAX and len(self._tally) - on_its_way > 1
        )

    def _step(self, *, at_end: bool) -> None:
        """Take in the answer to what is on its way, and send what comes next."""
        self._ready()
        self._collect()
        self._compare()
        if self._is_full() or (at_end and len(self._tally)):
            self._wait_for_others()
            self._send(at_end=at_end)

    def _ready(self) -> None:
        """Have a connection, and on a new one know where the sink stands."""
        link = self._links.get()
        if link is not self._link:
            self._inbox, self._sid = link.subscribe_below()
            self._link = link
            self._in_flight = None
            self._is_begun = False
        if not self._is_begun:
            self._begin(link)

    def _begin(self, link: Link) -> None:
        writer, store = self._writer, self._store
        self._check_epoch(link)
        while True:
            found = store.read(link, writer.partition)
            self._check_kept(found)
            plan = next_plan(found.plan, found.newest, writer.batch, writer.plan, writer.sink)
            if plan is None:
                assert found.plan is not None
                self._plan = found.plan
                break
            try:
                sequence = store.put(link, store.plan_subject, plan, plan.sequence)
            except JetStreamApiError as error:
                if error.err_code not in WRONG_LAST:
                    raise
                continue  # another task of this run, or another run, was first
            self._plan = plan._replace(sequence=sequence)
            break
        self._check_epoch(link)  # the plan, which every batch expects, is in the same stream
        self._is_begun = True
        self._stand(found.marker)
        self._patience.restart()

    def _check_kept(self, found: FoundMarkers) -> None:
        """Whether the stream has the plan that it had confirmed, or what came after it: limits remove the
        oldest first, so where all that there is of the sink is older, the stream has lost its end. Then
        partitions that are done are gone, too.
        """
        stored = [each.sequence for each in found if each is not None]
        if stored and max(stored) < self._plan.sequence:
            raise StreamResetError(
                f"jetstream sink: the stream has lost what it had confirmed of batch {self._writer.batch} of "
                f"sink {self._writer.sink!r}; the batch has to run again"
            )

    def _check_epoch(self, link: Link) -> None:
        if self._store.created(link) != self._epoch:
            raise StreamResetError(
                f"jetstream sink: the stream was deleted and made again while {self._writer} was written; "
                "the batch has to run again"
            )

    def _stand(self, marker: Marker | None) -> None:
        """Go on from a partition's marker."""
        tally = self._tally
        self._fence = marker.sequence if marker is not None else 0
        ours = marker is not None and marker.batch == self._writer.batch
        if (marker.rows if ours and marker is not None else 0) < tally.stored:
            raise StreamResetError(
                f"jetstream sink: the stream has lost rows of {self._writer} that it had confirmed; the "
                "batch has to run again"
            )
        if ours and marker is not None and (marker.rows > tally.stored or self._is_news(marker)):
            tally.expect(marker)

    def _is_news(self, marker: Marker) -> bool:
        return marker.plan != self._writer.plan or marker.digest != self._tally.digest

    def _compare(self) -> None:
        before = self._tally.stored
        met = self._tally.compare()
        self.found_stored += self._tally.stored - before
        if met is None or met.plan == self._writer.plan:
            return
        confirmed = met._replace(plan=self._writer.plan)
        assert self._link is not None
        subject = self._store.marker_subject(self._writer.partition)
        try:
            self._fence = self._store.put(self._link, subject, confirmed, self._fence)
        except JetStreamApiError as error:
            if error.err_code not in WRONG_LAST:
                raise
            self._is_begun = False
            self._ready()
            self._compare()

    def _wait_for_others(self) -> None:
        """Before the first row of a batch that runs again: wait until what is stored was found equal."""
        if self._are_others_confirmed or not self._plan.again:
            return
        assert self._link is not None
        mine = self._store.marker_subject(self._writer.partition)
        patience = self._patience.fresh(
            self._wait_s, f"the other partitions of {self._writer} to be compared"
        )
        before = 0
        while True:
            found = self._store.all_markers(self._link)
            found.pop(mine, None)
            left = not_confirmed(list(found.values()), self._plan)
            if not left:
                break
            if len(left) < before:
                patience.restart()
            before = len(left)
            patience.pause(
                NotComparedError(
                    f"jetstream sink: {len(left)} partitions that an earlier run of batch "
                    f"{self._writer.batch} wrote to sink {self._writer.sink!r} were not compared with this "
                    "run: it has fewer partitions than that one, or fewer tasks run at once"
                )
            )
        self._are_others_confirmed = True

    # -- an atomic batch

    def _send(self, *, at_end: bool) -> None:
        count = min(self._rows_max, len(self._tally))
        chunk = self._tally.chunk(count)
        if self._tally.bytes > BYTES_MAX:
            chunk = self._tally.chunk(_fitting(chunk.rows.payloads))
        is_last = at_end and len(chunk.rows) == len(self._tally)
        writer = self._writer
        marker = Marker(writer.batch, writer.plan, chunk.total, chunk.digest, is_last)
        self._batches += 1
        to = b"%b%d" % (self._inbox, self._batches)
        assert self._link is not None
        self._link.send(self._encode(chunk, marker, to))
        self._in_flight = _InFlight(chunk, to)

    def _encode(self, chunk: Chunk, marker: Marker, to: bytes) -> bytes:
        """The batch as bytes: rows, the first one fenced by the plan, and the marker."""
        batch_id = b"%b-%d" % (self._nonce, self._batches)
        out = []
        front = b"NATS/1.0\r\nNats-Batch-Id: %b\r\nNats-Batch-Sequence: " % batch_id
        fixed, number = len(front) + 4, 0
        fence = b"%b: %d\r\n%b: %b\r\n" % (
            EXPECTED_LAST_SUBJECT_SEQ.encode(),
            self._plan.sequence,
            EXPECTED_LAST_SUBJECT_SEQ_SUBJECT.encode(),
            self._store.plan_subject.encode(),
        )
        for subject, own, payload in zip(*chunk.rows, strict=True):
            number += 1
            lines = fence + own if number == 1 else own
            digits = b"%d" % number
            head = fixed + len(digits) + len(lines)
            sizes = b"%d %d" % (head, head + len(payload))
            out.append(
                b"HPUB %b %b\r\n%b%b\r\n%b\r\n%b\r\n"
                % (subject, sizes, front, digits, lines, payload)
            )
        block = b"%b%d\r\nNats-Batch-Commit: 1\r\n%b\r\n" % (
            front,
            number + 1,
            self._store.marker_lines(self._fence),
        )
        body = marker.encode()
        subject = self._store.marker_subject(self._writer.partition).encode()
        out.append(
            b"HPUB %b %b %d %d\r\n%b%b\r\n"
            % (subject, to, len(block), len(block) + len(body), block, body)
        )
        return b"".join(out)

    def _collect(self) -> None:
        """Wait for the answer to the batch that is on its way."""
        if self._in_flight is None:
            return
        in_flight, self._in_flight = self._in_flight, None
        try:
            ack = self._answer(in_flight.to)
        except JetStreamApiError as error:
            if error.err_code in WRONG_LAST:
                self._stand_again(error)
                return
            if error.err_code in _TRANSIENT:
                raise _TryAgainError(str(error)) from error
            if error.err_code == _DUPLICATE_ID:
                raise ACCEPTED.error(
                    f"{self._writer}: a message id of the column msg_id is in the stream already, or twice "
                    "in a batch; exactlyOnce needs no message ids"
                ) from error
            raise
        self._tally.is_stored(in_flight.chunk)
        self._fence = ack.seq
        self._patience.restart()

    def _answer(self, to: bytes) -> PubAck:
        assert self._link is not None
        while True:
            frames = self._link.poll(self._quiet_s)
            if not frames:
                raise RequestTimeoutError(f"no answer to {self._writer} within {self._quiet_s:g} s")
            for _, subject, _, _, headers, payload in frames:
                if subject == to:
                    if says_nobody(headers, payload):
                        raise NoRespondersError("no stream takes the sink's markers at the moment")
                    return decode_pub_ack(payload)

    def _stand_again(self, error: JetStreamApiError) -> None:
        """The fence has moved: a twin of this task has written, or this run is over."""
        before = self._plan.sequence, self._fence
        self._is_begun = False
        self._ready()
        if (self._plan.sequence, self._fence) == before:
            raise _TryAgainError(f"{self._writer}: {error}") from error

    def _persist(self, action: Callable[[], None]) -> None:
        """Do it, and again on a new connection while the server may come back."""
        self._patience.persist(
            action,
            self._links.drop,
            lambda error: may_pass(error) or isinstance(error, _TryAgainError),
        )


def _fitting(payloads: list[bytes]) -> int:
    """How many of these make an atomic batch, at least one."""
    size = 0
    for count, payload in enumerate(payloads):
        size += len(payload)
        if size > BYTES_MAX and count:
            return count
    return len(payloads)
