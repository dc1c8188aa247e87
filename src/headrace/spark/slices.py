"""How far a batch reaches, how it is split into tasks, and what its lag counts. Pure.

Sequences are not messages: a stream may have removed most of them, and a query may want few subjects of many.
``Count`` says how many messages a range ``(lo, hi]`` has, by asking the server where it has to.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeAlias

from ..api.streams import StreamConfig
from ..sink_markers import SPACE
from .options import SourceOptions

Count: TypeAlias = Callable[[int, int], int]

ROUTED_BYTES_MAX: Final = 1024 * 1024 * 1024
"""Of a batch that its tasks read together, estimated; beyond it each task reads for itself."""
NEARLY: Final = (7, 8)  # this share of what was asked for is good enough to stop searching


class Slice(NamedTuple):
    """One task: the sequences ``(lo, hi]``, and of them only these partitions (empty: all).

    ``since_ns``: every message of the batch was stored at or after this time (0: not known). ``epoch``: when
    the stream that was planned for was created; ``end``: the sequence of the last message of the batch, and
    when it was stored, in ns (0: not known). ``stream``: its name. ``route`` names the batch whose
    ``tasks`` tasks read the range together (see ``tasks.routing``); "" where each reads for itself.
    ``shares``: the partitions of each of those tasks, where they are those of a group.
    ``subjects``: only these, in a query that is a member of a group. ``runs``: only the sequences in
    these ranges, first and last, in a query that takes a surplus. ``size``: about how many bytes it has
    (0: not known).
    ``from_first``, ``to_last``: a batch read's edge that moves with its stream's (see ``open_ends``);
    ``plan`` names the plan that it is of, where the plan has an edge that moves to the last.
    """

    lo: int
    hi: int
    partitions: tuple[int, ...] = ()
    since_ns: int = 0
    epoch: str = ""
    stream: str = ""
    route: str = ""
    tasks: int = 0
    shares: tuple[tuple[int, ...], ...] = ()
    subjects: tuple[str, ...] = ()
    runs: tuple[tuple[int, int], ...] = ()
    size: int = 0
    from_first: bool = False
    to_last: bool = False
    end: tuple[int, int] = (0, 0)
    plan: str = ""

    @property
    def width(self) -> int:
        return self.hi - self.lo


def end_of_batch(lo: int, last: int, max_messages: int, count: Count) -> int:
    """Where a batch after ``lo`` ends: at ``last``, or where it has nearly ``max_messages``, never more.

    A batch that ends before ``last`` has at least one message. Where the messages lie is found by asking for
    counts: by interpolation, and by halves in between, in case they lie unevenly.
    """
    if last - lo <= max_messages:
        return max(lo, last)
    left, right = lo, last
    have_left, have_right = 0, count(lo, last)
    if have_right <= max_messages:
        return last
    probes = 0
    while right - left > 1:
        middle = (left + right) // 2
        if probes % 2 == 0:
            share = (max_messages - have_left) / max(1, have_right - have_left)
            middle = min(max(left + int((right - left) * share), left + 1), right - 1)
        have, probes = count(lo, middle), probes + 1
        if have > max_messages:
            right, have_right = middle, have
            continue
        left, have_left = middle, have
        if have and have * NEARLY[1] >= max_messages * NEARLY[0]:
            break
    return left


def share_out(total: int, weights: Mapping[str, int]) -> dict[str, int]:
    """Divide ``total`` in proportion to the weights; the sum is ``total`` at most.

    Who has any weight gets at least one. If there are more of these than ``total``, the heaviest get one.
    """
    order = sorted(weights, key=lambda name: -weights[name])
    sum_of = sum(weights.values()) or 1
    shares = {name: max(min(1, weights[name]), total * weights[name] // sum_of) for name in weights}
    excess = sum(shares.values()) - total
    for name in order:  # the small ones were rounded up at the cost of the large ones
        taken = min(max(0, excess), max(0, shares[name] - 1))
        shares[name] -= taken
        excess -= taken
    for name in reversed(order):
        if excess > 0 and shares[name]:
            shares[name], excess = 0, excess - 1
    return shares


def split_by_count(
    lo: int, hi: int, *, max_tasks: int, min_messages: int, count: Count
) -> list[Slice]:
    """Contiguous slices of about as many messages each that together are exactly ``(lo, hi]``.

    A task costs about 50 ms however little it reads. So there are only as many as get ``min_messages`` each,
    and at most ``max_tasks``. An empty range has no slice.
    """
    messages = hi - lo
    if messages >= 2 * min_messages and max_tasks > 1:
        messages = count(lo, hi)
    if messages * NEARLY[1] >= (hi - lo) * NEARLY[0] or messages < 2 * min_messages:
        enough = min_messages if messages >= 2 * min_messages else hi - lo
        return split_by_sequence(lo, hi, max_tasks=max_tasks, min_messages=enough)
    tasks = min(max_tasks, messages // max(1, min_messages))
    cuts = [lo]
    while len(cuts) < tasks:
        share = -(-count(cuts[-1], hi) // (tasks + 1 - len(cuts)))
        cut = end_of_batch(cuts[-1], hi, max(1, share), count)
        if cut >= hi:
            break
        cuts.append(cut)
    return [Slice(a, b) for a, b in itertools.pairwise([*cuts, hi])]


def split_by_sequence(lo: int, hi: int, *, max_tasks: int, min_messages: int) -> list[Slice]:
    """Contiguous slices of nearly equal width that together are exactly ``(lo, hi]``.

    There are only as many as get ``min_messages`` sequences each, and at most ``max_tasks``. An empty range
    has no slice.
    """
    width = hi - lo
    if width <= 0:
        return []
    tasks = max(1, min(max_tasks, width // max(1, min_messages)))
    bounds = [lo + width * i // tasks for i in range(tasks + 1)]
    return [Slice(a, b) for a, b in itertools.pairwise(bounds)]


def split_by_partition(lo: int, hi: int, *, partitions: int, max_tasks: int) -> list[Slice]:
    """Slices that each read the whole range for some partitions; every partition is in exactly one.

    All messages of one partition are in one task, in order. With fewer tasks than partitions, a task has
    several. The assignment depends only on the two numbers, so a batch that runs again has the same tasks.
    An empty range has no slice.
    """
    if hi <= lo:
        return []
    tasks = max(1, min(max_tasks, partitions))
    if tasks == 1:
        return [Slice(lo, hi)]
    return [Slice(lo, hi, tuple(range(task, partitions, tasks))) for task in range(tasks)]


def counted_subjects(options: SourceOptions, config: StreamConfig) -> tuple[str, ...]:
    """The subjects of the messages that a query still has to read; none: all of the stream.

    Markers of sinks are no rows. A stream that has subjects of its own for them is counted by its others.
    Elsewhere subjects do not tell: below a ``markerPrefix``, and where a stream copies others or renames.
    """
    if options.subjects or options.include_markers:
        return options.subjects
    if config.sources or config.mirror is not None or config.subject_transform is not None:
        return ()
    others = tuple(each for each in config.subjects if not each.startswith(SPACE))
    return others if 0 < len(others) < len(config.subjects) else ()
