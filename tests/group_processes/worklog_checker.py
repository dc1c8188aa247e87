"""What a group's members may never do, judged from their log. Pure.

Messages are numbered from 0 within their key. What the driver of a test did stands in the same log: a worker
was ``killed``, or was ``out`` (paused, or cut off) and is ``back``; of the worker ``*``, that is the servers.

A member of ours that was out asks the server before it begins anything. One of another implementation, which
tells no generation, begins what had reached it before. What it begins first while it is cut off, or when it
is back, is ``stale``, and may be handled, or have been acked, by the new owner.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from group_processes.worklog import Line

__all__ = ["SERVERS", "Handling", "Verdict", "check"]

SERVERS = "*"
SHOWN = 5
FOREVER = 1 << 63


@dataclass(frozen=True)
class Handling:
    """One message in one handler. ``end`` is when its work was done, or its process was killed."""

    worker: str
    key: str
    number: int
    sequence: int
    generation: int
    start: int
    end: int = FOREVER
    is_done: bool = False
    acked_at: int = 0
    is_stale: bool = False


@dataclass
class Verdict:
    """What went wrong, and what is only counted."""

    lost: list[tuple[str, int]] = field(default_factory=list)
    overlapping: list[tuple[Handling, Handling]] = field(default_factory=list)
    disordered: list[tuple[Handling, Handling]] = field(default_factory=list)
    outdated: list[tuple[Handling, Handling]] = field(default_factory=list)
    acked_before: list[tuple[Handling, Handling]] = field(default_factory=list)
    unknown: list[Handling] = field(default_factory=list)
    handled: int = 0
    repeated: int = 0
    taken_over: int = 0  # begun while one who was out still had the key, in an older generation
    stale: int = 0

    @property
    def faults(self) -> Mapping[str, list[object]]:
        return {
            name: found for name, found in vars(self).items() if isinstance(found, list) and found
        }

    def __str__(self) -> str:
        counts = f"{self.handled} handled, {self.repeated} repeated, {self.taken_over} taken over, "
        counts += f"{self.stale} stale"
        found = [f"{name}: {len(each)}, first {each[:SHOWN]}" for name, each in self.faults.items()]
        return "\n".join([counts, *found])


def check(lines: Iterable[Line], published: Mapping[str, int]) -> Verdict:
    """Judge a log; ``published`` is how many messages each key had."""
    lines = list(lines)
    verdict = Verdict()
    outages = _outages(lines)
    by_key: defaultdict[str, list[Handling]] = defaultdict(list)
    for handling in _handlings(lines):
        by_key[handling.key].append(handling)
        if not 0 <= handling.number < published.get(handling.key, 0):
            verdict.unknown.append(handling)
    for key, count in published.items():
        found = by_key[key]
        done = [each.number for each in found if each.is_done]
        verdict.lost += [(key, number) for number in sorted({*range(count)} - {*done})]
        verdict.handled += len({*done})
        verdict.repeated += len(done) - len({*done})
        verdict.stale += sum(each.is_stale for each in found)
        _check_overlap(found, outages, verdict)
        _check_order(found, outages, verdict)
    return verdict


def _check_overlap(found: list[Handling], outages: _Outages, verdict: Verdict) -> None:
    """Two handlers at once for one key: only in two generations, the older one's worker being out."""
    open_: list[Handling] = []
    for later in found:
        open_ = [each for each in open_ if each.end > later.start]
        for earlier in open_:
            knows = earlier.generation and later.generation
            if earlier.is_stale or later.is_stale:
                continue
            if outages.between(earlier.worker, earlier.start, later.start) and (
                not knows or earlier.generation < later.generation
            ):
                verdict.taken_over += 1
            else:
                verdict.overlapping.append((earlier, later))
        open_.append(later)


def _check_order(found: list[Handling], outages: _Outages, verdict: Verdict) -> None:
    """First handlings in the key's order; generations only grow; what was acked does not come again."""
    firsts: dict[int, Handling] = {}
    acked: defaultdict[int, list[Handling]] = defaultdict(list)
    newest = None
    for each in found:
        for before in acked[each.number]:
            # A stranger may have got a message twice while it was out; the first one's ack is good.
            got_both = before.is_stale and before.worker == each.worker
            # nats-server keeps acks for a moment in its memory: killed, it forgets them.
            forgot = outages.between(SERVERS, before.start, each.start)
            if not (before.acked_at >= each.start or each.is_stale or got_both or forgot):
                verdict.acked_before.append((before, each))
                break
        firsts.setdefault(each.number, each)
        if each.acked_at:
            acked[each.number].append(each)
        if newest and 0 < each.generation < newest.generation:
            verdict.outdated.append((newest, each))
        if newest is None or each.generation > newest.generation:
            newest = each
    in_time = sorted(firsts.values(), key=lambda each: each.start)
    verdict.disordered += [(a, b) for a, b in itertools.pairwise(in_time) if a.number > b.number]


def _handlings(lines: list[Line]) -> list[Handling]:
    """In the order in which they began."""
    found: list[Handling] = []
    running: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    woken: set[str] = set()
    for line in lines:
        if line.what == "begun":
            key, number, sequence, generation = line.details
            numbers = int(number), int(sequence), int(generation)
            running[(line.worker, *line.details)].append(len(found))
            is_stale = line.worker in woken and not int(generation)
            woken.discard(line.worker)
            found.append(Handling(line.worker, key, *numbers, line.at, is_stale=is_stale))
        elif line.what in ("out", "back"):
            woken.add(line.worker)
        elif line.what in ("done", "acked"):
            same = running[(line.worker, *line.details)]
            if line.what == "done":  # of several at once, the one that was begun first
                at = next(at for at in same if not found[at].is_done)
                found[at] = replace(found[at], end=line.at, is_done=True)
            else:
                found[same[-1]] = replace(found[same[-1]], acked_at=line.at)
        elif line.what == "killed":
            for at in itertools.chain(*running.values()):
                if found[at].worker == line.worker and found[at].end == FOREVER:
                    found[at] = replace(found[at], end=line.at)
    return found


class _Outages:
    """When each worker was out, or the servers, and so all of them."""

    def __init__(self) -> None:
        self.spans: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)

    def between(self, worker: str, start: int, end: int) -> bool:
        """Whether a worker was out at some time of a span."""
        spans = self.spans[SERVERS] + (self.spans[worker] if worker != SERVERS else [])
        return any(out < end and start < back for out, back in spans)


def _outages(lines: list[Line]) -> _Outages:
    outages = _Outages()
    since: dict[str, int] = {}
    for line in lines:
        if line.what == "out":
            since.setdefault(line.worker, line.at)
        elif line.what == "back" and line.worker in since:
            outages.spans[line.worker].append((since.pop(line.worker), line.at))
    for worker, at in since.items():
        outages.spans[worker].append((at, FOREVER))
    return outages
