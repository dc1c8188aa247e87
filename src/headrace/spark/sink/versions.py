"""Which of two values of a key is the later one: what a value says of itself, and how that is judged. Pure.

A sink with ``key`` keeps no markers. Each value carries its **version** in a header: which sink wrote it, in
which batch and run, and which row it was. A value is stored only over the one that it was compared with, and
only if it is later. Where the user named columns of the ``order``, it is later by them, in whatever batch it
comes; else it is that of the later batch. So tasks that write the same key at the same time leave the later
row whoever comes first, a task that runs again finds what is stored, and one that was given up stores nothing
over its successors.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from hashlib import blake2b
from typing import Final, NamedTuple

from .markers import FencedError, PlanId

HEADER: Final = "Headrace-Version"
LINE: Final = b"\nHeadrace-Version: "
_ORDER_ID_BYTES: Final = 4
_FRONT_MAX: Final = 256  # bytes that sink, batch and time of a run take, if we wrote them


class RowVersion(NamedTuple):
    """Which row it was: the values of the columns that tell the order, then the task, and the row of that."""

    order: tuple[int, ...]
    partition: int
    row: int


def order_id(columns: Sequence[str]) -> str:
    """What tells orders by these columns from orders by others; "" where no columns are named."""
    names = ",".join(columns).lower().encode()
    return blake2b(names, digest_size=_ORDER_ID_BYTES).hexdigest() if columns else ""


class Version(NamedTuple):
    """What a value says of itself. ``digest`` tells values from each other.

    ``by`` is the ``order_id`` of the columns that the user named: orders by the same ones are compared
    across batches, and sinks.
    """

    sink: str
    batch: int
    plan: PlanId
    place: RowVersion
    digest: str
    by: str = ""

    def encode(self) -> bytes:
        """The header's line."""
        order = _order_text(self.by, self.place.order)
        text = (
            f"{HEADER}: {self.sink} {self.batch} {self.plan.made_ns} {self.plan.nonce} {order} "
            f"{self.place.partition}.{self.place.row} {self.digest}\r\n"
        )
        return text.encode()


def _order_text(by: str, order: tuple[int, ...]) -> str:
    written = ",".join(map(str, order)) or "-"
    return f"{by}:{written}" if by else written


class Writing:
    """The lines, and the quick judgement, of one task: what all its values have in common is made once."""

    def __init__(self, sink: str, batch: int, plan: PlanId, partition: int, by: str = "") -> None:
        self._by = by
        self._batch, self._made_ns = batch, plan.made_ns
        self._of_sink = LINE + f"{sink} ".encode()
        self._front = f"{HEADER}: {sink} {batch} {plan.made_ns} {plan.nonce} ".encode()
        self._partition = partition

    def line(self, order: tuple[int, ...], row: int, digest: str) -> bytes:
        """As ``Version.encode``."""
        return b"%b%b %d.%d %b\r\n" % (
            self._front,
            _order_text(self._by, order).encode(),
            self._partition,
            row,
            digest.encode(),
        )

    def is_later(self, headers: bytes) -> bool:
        """Whether this task's value is surely to be stored over one with these headers; else ``judge``."""
        at = headers.find(LINE)
        if at < 0:
            return True  # it is nobody's
        if self._by:
            return False  # its order tells
        mine = headers.startswith(self._of_sink, at)
        fields = headers[at + len(LINE) : at + _FRONT_MAX].split(b" ", 3)
        if len(fields) < 4:
            return False
        # Of another sink, the run that began later has the later value.
        number, bound = (fields[1], self._batch) if mine else (fields[2], self._made_ns)
        return number.isdigit() and int(number) < bound


class Verdict(Enum):
    """What is to be done with a value."""

    STORE = 1
    IS_STORED = 2
    REPLACED = 3
    """The batch has a later row of this key, and that is stored."""
    OUTRUN = 4
    """Another sink has stored a value since this run of the batch began."""
    LATE = 5
    """The key has a value that is later by the columns of the order."""


def read_version(headers: bytes) -> Version | None:
    """The version in a header block; None if there is none, or none that we wrote."""
    at = headers.find(LINE)
    if at < 0:
        return None
    line = headers[at + len(LINE) :].split(b"\r\n", 1)[0].decode(errors="replace")
    fields = line.split(" ")
    try:
        sink, batch, made_ns, nonce, order, place, digest = fields
        partition, row = place.split(".")
        by, _, order = order.rpartition(":")
        values = tuple(map(int, order.split(","))) if order != "-" else ()
        plan = PlanId(int(made_ns), nonce)
        place_ = RowVersion(values, int(partition), int(row))
        return Version(sink, int(batch), plan, place_, digest, by)
    except ValueError:
        return None


def judge(stored: Version | None, mine: Version, *, exactly: bool) -> Verdict:
    """Compare a value with the one that is stored.

    Args:
        stored: the version of that; None for nobody's value, over which anything is stored.
        exactly: a batch has the same rows when it runs again, so what an earlier run has stored of the row,
            or of a later one, is not stored again. It takes columns that tell the order.

    Raises:
        FencedError: a later batch of this sink, or a later run of this one, has stored it.
    """
    if stored is None:
        return Verdict.STORE
    is_ordered = mine.by != "" and stored.by == mine.by
    ours, theirs = mine.place.order, stored.place.order
    if stored.sink != mine.sink:
        if is_ordered and ours != theirs:
            return Verdict.STORE if theirs < ours else Verdict.LATE
        return Verdict.OUTRUN if stored.plan > mine.plan else Verdict.STORE
    if stored.batch > mine.batch:
        raise FencedError(
            f"jetstream sink: a key has a value of batch {stored.batch} of sink {mine.sink!r}, and this is "
            f"a writer of batch {mine.batch}: either a task of long ago, which can be ignored, or the query "
            "has a new or restored checkpoint. Use the checkpoint that wrote these batches, or a new "
            "sinkId: then what it writes counts as later"
        )
    if stored.batch < mine.batch:
        return Verdict.LATE if is_ordered and theirs > ours else Verdict.STORE
    if stored.plan > mine.plan:
        raise FencedError(
            f"jetstream sink: a later run of batch {mine.batch} writes to sink {mine.sink!r}; this one ends"
        )
    if stored.plan == mine.plan:
        if stored.place == mine.place:
            return Verdict.IS_STORED
        return Verdict.REPLACED if stored.place > mine.place else Verdict.STORE
    if is_ordered and theirs > ours:
        return Verdict.LATE
    if not (exactly and mine.place.order):
        # Nothing tells which of the rows of two runs is later, so this run stores all of its own.
        return Verdict.STORE
    if stored.place.order == mine.place.order and stored.digest == mine.digest:
        return Verdict.IS_STORED
    return Verdict.REPLACED if stored.place > mine.place else Verdict.STORE
