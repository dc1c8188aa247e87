"""Pull requests that wait: their order, their end, and how much they still want.

Pure state: it sends nothing. Requests stand in lanes, served in order of lane and first in, first out
within one; after each message a request that wants more goes to the end of its lane. Merged lanes are
served as if they were one. A lane that is not asked for costs nothing, however many wait there. Ends and
heartbeats are kept in one heap by time, whatever the order of arrival.

In which lane a request waits is decided by the consumer's priority policy (``priority_policies``).
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, TypeAlias

from .....api.consumers import PullRequest
from ...ports import Origin, Target

_SWEEP_AT: Final = 1024
_NS: Final = 1_000_000_000


class PullTerms:
    """What a pull request asks for, read once for all that ask for the same."""

    __slots__ = (
        "batch",
        "heartbeat_ns",
        "is_choosy",
        "lasts_ns",
        "max_bytes",
        "min_ack_pending",
        "min_pending",
        "no_wait",
        "pin_id",
        "plain",
        "priority",
    )

    def __init__(self, request: PullRequest, *, plain: bool = False) -> None:
        self.batch = request.batch
        self.max_bytes = request.max_bytes
        self.no_wait = request.no_wait
        self.lasts_ns = round(request.expires * _NS) if request.expires else 0
        self.heartbeat_ns = max(round(request.idle_heartbeat * _NS), 0)
        self.min_pending = request.min_pending
        self.min_ack_pending = request.min_ack_pending
        self.is_choosy = bool(request.min_pending or request.min_ack_pending)
        """Whether it has thresholds, one of which has to be reached."""
        self.pin_id = request.id
        self.priority = request.priority
        self.plain = plain
        """Whether the body was no JSON: such a request belongs to no group."""


class WaitingRequest:
    """One pull request. Times are monotonic readings in nanoseconds, 0 for never."""

    __slots__ = (
        "bounded",
        "bytes_left",
        "delivered",
        "expires_ns",
        "inbox",
        "lane",
        "left",
        "origin",
        "pass_number",
        "pin_id",
        "quiet_since_ns",
        "seen_seq",
        "target",
        "terms",
        "turn",
        "waiting",
    )

    def __init__(
        self, inbox: bytes, terms: PullTerms, now_ns: int, origin: Origin | None = None
    ) -> None:
        self.inbox = inbox
        self.terms = terms
        self.origin = origin
        """The session that asks, where it is known."""
        self.left = terms.batch
        """Messages still to deliver; at 0 or below (a batch of 0 wants one) the next is the last."""
        self.bytes_left = bytes_left = terms.max_bytes
        self.bounded = bytes_left > 0
        lasts_ns = terms.lasts_ns
        self.expires_ns = now_ns + lasts_ns if lasts_ns else 0
        self.quiet_since_ns = now_ns
        self.pin_id = terms.pin_id
        self.lane = 0
        self.turn = 0
        """Rises with each request that goes to the end of a lane."""
        self.delivered = 0
        self.seen_seq = 0
        """The stream's last sequence on arrival: a no-wait request ends only after that is durable."""
        self.waiting = False
        self.target: Target | None = None
        self.pass_number = 0
        """The delivery pass in which ``target`` was resolved."""

    @property
    def one_shot(self) -> bool:
        """Whether the request ends as soon as there is nothing more for it."""
        return self.terms.no_wait and (not self.expires_ns or self.delivered > 0)


class Thresholds(NamedTuple):
    """What the thresholds of requests are compared with, for messages that go out one after the other."""

    pending: int
    """How many are to be delivered, with the first of these messages."""
    ack_pending: int
    """How many acknowledgements are awaited before it."""
    step: int
    """How many more are so with each of them."""

    def are_met(self, terms: PullTerms, first: int, last: int) -> bool:
        """Whether one threshold is reached for each of these, from one to another, counted from 0."""
        return (
            0 < terms.min_pending <= self.pending - last
            or 0 < terms.min_ack_pending <= self.ack_pending + self.step * first
        )


EndRequest: TypeAlias = Callable[[WaitingRequest, bytes], None]
"""Finishes a request with a status that tells what it did not get."""


class Lane:
    """Requests in their order, and what those that wait want together."""

    __slots__ = ("requests", "waiting", "wanted")

    def __init__(self) -> None:
        self.requests: deque[WaitingRequest] = deque()
        """Some may have ended already."""
        self.waiting = 0
        """How many wait, those included that were popped and are to come back."""
        self.wanted = 0

    def head(self) -> WaitingRequest | None:
        """The first that waits; it stays where it is."""
        requests = self.requests
        while requests and not requests[0].waiting:
            requests.popleft()
        return requests[0] if requests else None


class PullQueue:
    """The waiting requests of one consumer."""

    def __init__(self, max_waiting: int, lanes: int = 1, *, merged: bool = False) -> None:
        """``merged``: lanes are no ranks, requests are served in the order in which they joined theirs."""
        self.max_waiting = max_waiting
        self._lanes = [Lane() for _ in range(lanes)]
        self._merged = merged
        self._times: list[tuple[int, int, WaitingRequest]] = []
        self._tie = 0
        self._turn = 0
        self._impatient: dict[WaitingRequest, None] = {}
        self.waiting = 0
        """How many requests wait."""
        self.wanted = 0
        """How many messages they want together."""

    def __len__(self) -> int:
        return self.waiting

    def __iter__(self) -> Iterator[WaitingRequest]:
        for lane in range(len(self._lanes)):
            yield from self.in_lane(lane)

    def in_lane(self, lane: int) -> Iterator[WaitingRequest]:
        """Those that wait in one lane, in its order."""
        for request in self._lanes[lane].requests:
            if request.waiting:
                yield request

    def waiting_in(self, lanes: int) -> int:
        """How many wait in the first ``lanes`` lanes."""
        if lanes == len(self._lanes):
            return self.waiting
        return sum(lane.waiting for lane in self._lanes[:lanes])

    def wanted_in(self, lanes: int) -> int:
        """How many messages those in the first so many lanes want together."""
        if lanes == len(self._lanes):
            return self.wanted
        return sum(lane.wanted for lane in self._lanes[:lanes])

    @property
    def is_full(self) -> bool:
        return self.waiting >= self.max_waiting

    @property
    def has_one_shots(self) -> bool:
        """Whether some waiting request asked not to wait."""
        return bool(self._impatient)

    def impatient(self) -> list[WaitingRequest]:
        """Those that asked not to wait, in the order of the queue."""
        return sorted(self._impatient, key=lambda request: (request.lane, request.turn))

    def add(self, request: WaitingRequest) -> None:
        """Let a request wait at the end of its lane."""
        request.waiting = True
        self.waiting += 1
        wanted = max(request.left, 1)
        self.wanted += wanted
        lane = self._lanes[request.lane]
        lane.waiting += 1
        lane.wanted += wanted
        terms = request.terms
        if terms.no_wait:
            self._impatient[request] = None
        self._turn = request.turn = self._turn + 1
        lane.requests.append(request)
        if request.expires_ns:
            self._push_time(request.expires_ns, request)
        if terms.heartbeat_ns:
            self._push_time(request.quiet_since_ns + terms.heartbeat_ns, request)

    def pop(self, lanes: int) -> WaitingRequest | None:
        """Remove the next request of the first so many lanes; it still counts as waiting."""
        if self._merged and lanes > 1:
            return self._pop_eldest(lanes)
        for lane in self._lanes[:lanes]:
            if lane.head() is not None:
                return lane.requests.popleft()
        return None

    def _pop_eldest(self, lanes: int) -> WaitingRequest | None:
        """Of the first of each lane, the one that joined it before the others did."""
        heads = [head for lane in self._lanes[:lanes] if (head := lane.head()) is not None]
        if not heads:
            return None
        eldest = min(heads, key=lambda request: request.turn)
        return self._lanes[eldest.lane].requests.popleft()

    def push_back(self, request: WaitingRequest) -> None:
        """Put a popped request at the end of its lane."""
        self._turn += 1
        request.turn = self._turn
        self._lanes[request.lane].requests.append(request)

    def push_front(self, request: WaitingRequest) -> None:
        """Put a popped request back where it was."""
        self._lanes[request.lane].requests.appendleft(request)

    def move(self, request: WaitingRequest, lane: int) -> None:
        """A popped request belongs to another lane from now on."""
        wanted = max(request.left, 1)
        for place, sign in ((self._lanes[request.lane], -1), (self._lanes[lane], 1)):
            place.waiting += sign
            place.wanted += sign * wanted
        request.lane = lane

    def serve_in_turn(
        self,
        count: int,
        lanes: int,
        pin_id: str,
        pass_number: int,
        now_ns: int,
        resolve: Callable[[bytes], Target | None],
        thresholds: Thresholds,
    ) -> list[Target]:
        """The receivers of the next ``count`` messages when each request gets one in turn.

        Only the first so many lanes take part. The messages count as delivered. There are fewer receivers
        when the next request needs a closer look: it is limited in bytes, has another id than ``pin_id``,
        none of its thresholds is reached, nobody listens to it, or its receiver has enough for now.
        """
        targets: list[Target] = []
        turn, over = self._turn, 0
        for lane in self._lanes[:lanes]:
            requests, before, begun, ended = lane.requests, len(targets), turn, 0
            while requests and len(targets) < count:
                request = requests[0]
                if not request.waiting:
                    requests.popleft()
                    continue
                if request.turn > begun:  # each of the lane has been looked at, and had one
                    left = count - len(targets)
                    served = _whole_rounds(requests, left, turn, len(targets), thresholds)
                    targets += served
                    begun = turn = turn + len(served)
                    if served:
                        continue
                if request.pass_number != pass_number:
                    target = resolve(request.inbox)
                    if target is None or target.blocked:
                        break
                    request.target = target
                    request.pass_number = pass_number
                    request.quiet_since_ns = now_ns
                elif request.turn <= self._turn and request.target.blocked:  # type: ignore[union-attr]
                    break  # by what it was given before, in this pass
                if request.bounded or request.pin_id != pin_id:
                    break
                terms = request.terms
                if terms.is_choosy and not thresholds.are_met(terms, len(targets), len(targets)):
                    break
                requests.popleft()
                targets.append(request.target)  # type: ignore[arg-type]  # looked up in this pass
                request.delivered += 1
                request.left = left = request.left - 1
                if left > 0:
                    turn += 1
                    request.turn = turn
                    requests.append(request)
                else:
                    request.waiting = False
                    ended += 1
                    if terms.no_wait:
                        del self._impatient[request]
            wanted = len(targets) - before
            self.wanted -= wanted
            lane.wanted -= wanted
            self.waiting -= ended
            lane.waiting -= ended
            over += ended
            if requests:
                break  # the next lane has to wait for this one
        self._turn = turn
        if over:
            self._sweep()
        return targets

    def delivered(self, request: WaitingRequest, count: int, size: int, now_ns: int) -> None:
        """``count`` messages of ``size`` bytes together went to a request."""
        before = max(request.left, 1)
        request.left -= count
        request.delivered += count
        request.quiet_since_ns = now_ns
        if request.bounded:
            request.bytes_left -= size
        less = before - max(request.left, 1)
        self.wanted -= less
        self._lanes[request.lane].wanted -= less

    def finish(self, request: WaitingRequest) -> None:
        """A request is over, whether it stands in a lane or was popped."""
        if request.waiting:
            request.waiting = False
            wanted = max(request.left, 1)
            self.waiting -= 1
            self.wanted -= wanted
            lane = self._lanes[request.lane]
            lane.waiting -= 1
            lane.wanted -= wanted
            self._impatient.pop(request, None)
            self._sweep()

    def next_time_ns(self) -> int | None:
        times = self._times
        while times and not times[0][2].waiting:
            heapq.heappop(times)
        return times[0][0] if times else None

    def due(self, now_ns: int) -> Iterator[tuple[WaitingRequest, bool]]:
        """What is due, by time: (request, True when it has expired, False for a heartbeat).

        A caller that stops early gets the rest the next time.
        """
        times = self._times
        while times and times[0][0] <= now_ns:
            request = heapq.heappop(times)[2]
            if not request.waiting:
                continue
            if request.expires_ns and request.expires_ns <= now_ns:
                yield request, True
            elif heartbeat_ns := request.terms.heartbeat_ns:
                is_quiet = request.quiet_since_ns + heartbeat_ns <= now_ns
                if is_quiet:
                    request.quiet_since_ns = now_ns
                self._push_time(request.quiet_since_ns + heartbeat_ns, request)
                if is_quiet:
                    yield request, False

    def _push_time(self, at_ns: int, request: WaitingRequest) -> None:
        self._tie += 1
        heapq.heappush(self._times, (at_ns, self._tie, request))

    def _sweep(self) -> None:
        """Drop finished requests from heap and lanes once they outnumber the waiting ones."""
        if len(self._times) > 4 * self.waiting + _SWEEP_AT:
            # In place: ``due`` may be looking at this very list.
            self._times[:] = [entry for entry in self._times if entry[2].waiting]
            heapq.heapify(self._times)
        for lane in self._lanes:
            requests = lane.requests
            if len(requests) > 2 * lane.waiting + _SWEEP_AT:
                alive = [request for request in requests if request.waiting]
                requests.clear()
                requests.extend(alive)


def _whole_rounds(
    requests: deque[WaitingRequest], count: int, turn: int, ahead: int, thresholds: Thresholds
) -> list[Target]:
    """The receivers of as many messages as go to all these in turn and leave each waiting for more.

    At most ``count``; all are ready to be served. ``turn`` is the last one that was taken, and ``ahead``
    how many messages go out before these.
    """
    size = len(requests)
    rounds = min(count // size, min([request.left for request in requests]) - 1)
    if rounds <= 0:
        return []
    last = ahead + rounds * size - 1
    for request in requests:
        if request.terms.is_choosy and not thresholds.are_met(request.terms, ahead, last):
            return []
    targets: list[Target] = []
    for place, request in enumerate(requests, turn + (rounds - 1) * size + 1):
        assert request.target is not None
        targets.append(request.target)
        request.delivered += rounds
        request.left -= rounds
        request.turn = place
    return targets * rounds
