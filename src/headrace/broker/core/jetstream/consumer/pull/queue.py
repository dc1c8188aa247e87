"""Pull requests that wait: their order, their end, and how much they still want.

Pure state: it sends nothing. Requests stand in lanes, served in order of lane and first in, first out
within one; after each message a request that wants more goes to the end of its lane. Ends and heartbeats
are kept in one heap by time, whatever the order of arrival.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from ......api.consumers import PullRequest
from ....ports.bus import Origin, Target

_NS: Final = 1_000_000_000
_SWEEP_AT: Final = 1024


class WaitingRequest:
    """One pull request. Times are monotonic readings in nanoseconds, 0 for never."""

    __slots__ = (
        "bounded",
        "bytes_left",
        "delivered",
        "expires_ns",
        "group",
        "heartbeat_ns",
        "inbox",
        "lane",
        "left",
        "min_ack_pending",
        "min_pending",
        "no_wait",
        "origin",
        "pass_number",
        "pin_id",
        "plain",
        "priority",
        "quiet_since_ns",
        "seen_seq",
        "target",
        "waiting",
    )

    def __init__(
        self,
        inbox: bytes,
        request: PullRequest,
        now_ns: int,
        *,
        plain: bool,
        origin: Origin | None = None,
    ) -> None:
        self.inbox = inbox
        self.origin = origin
        """The session that asks, where it is known."""
        self.left = request.batch
        """Messages still to deliver; at 0 or below (a batch of 0 wants one) the next is the last."""
        self.bytes_left = request.max_bytes
        self.bounded = request.max_bytes > 0
        self.no_wait = request.no_wait
        self.expires_ns = now_ns + round(request.expires * _NS) if request.expires else 0
        self.heartbeat_ns = max(round(request.idle_heartbeat * _NS), 0)
        self.quiet_since_ns = now_ns
        self.group = request.group
        self.min_pending = request.min_pending
        self.min_ack_pending = request.min_ack_pending
        self.pin_id = request.id
        self.priority = request.priority
        self.plain = plain
        """Whether the body was no JSON: such a request belongs to no group."""
        self.lane = 0
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
        return self.no_wait and (not self.expires_ns or self.delivered > 0)


EndRequest: TypeAlias = Callable[[WaitingRequest, bytes], None]
"""Finishes a request with a status that tells what it did not get."""


class PullQueue:
    """The waiting requests of one consumer."""

    def __init__(self, max_waiting: int, lanes: int = 1) -> None:
        self.max_waiting = max_waiting
        self._lanes: list[deque[WaitingRequest]] = [deque() for _ in range(lanes)]
        self._times: list[tuple[int, int, WaitingRequest]] = []
        self._tie = 0
        self._no_wait = 0
        self.waiting = 0
        """How many requests wait."""
        self.wanted = 0
        """How many messages they want together."""

    def __len__(self) -> int:
        return self.waiting

    def __iter__(self) -> Iterator[WaitingRequest]:
        for lane in self._lanes:
            for request in lane:
                if request.waiting:
                    yield request

    @property
    def is_full(self) -> bool:
        return self.waiting >= self.max_waiting

    @property
    def has_one_shots(self) -> bool:
        """Whether some waiting request asked not to wait."""
        return self._no_wait > 0

    def add(self, request: WaitingRequest) -> None:
        """Let a request wait at the end of its lane."""
        request.waiting = True
        self.waiting += 1
        self.wanted += max(request.left, 1)
        self._no_wait += request.no_wait
        self._lanes[request.lane].append(request)
        if request.expires_ns:
            self._push_time(request.expires_ns, request)
        if request.heartbeat_ns:
            self._push_time(request.quiet_since_ns + request.heartbeat_ns, request)

    def pop(self) -> WaitingRequest | None:
        """Remove the next request from its lane; it still counts as waiting."""
        for lane in self._lanes:
            while lane:
                request = lane.popleft()
                if request.waiting:
                    return request
        return None

    def push_back(self, request: WaitingRequest) -> None:
        """Put a popped request at the end of its lane."""
        self._lanes[request.lane].append(request)

    def push_front(self, request: WaitingRequest) -> None:
        """Put a popped request back where it was."""
        self._lanes[request.lane].appendleft(request)

    def serve_in_turn(
        self, count: int, pass_number: int, now_ns: int, resolve: Callable[[bytes], Target | None]
    ) -> list[Target]:
        """The receivers of the next ``count`` messages when each request gets one in turn.

        The messages count as delivered. There are fewer receivers when the next request needs a closer
        look: it is limited in bytes, nobody listens to it, or its receiver has enough for now.
        """
        targets: list[Target] = []
        wanted = 0
        for lane in self._lanes:
            while lane and len(targets) < count:
                request = lane[0]
                if not request.waiting:
                    lane.popleft()
                    continue
                target = request.target
                if request.pass_number != pass_number:
                    target = resolve(request.inbox)
                    if target is not None and not target.blocked:
                        request.target = target
                        request.pass_number = pass_number
                        request.quiet_since_ns = now_ns
                if request.pass_number != pass_number or target is None or request.bounded:
                    break
                lane.popleft()
                targets.append(target)
                request.delivered += 1
                request.left -= 1
                if request.left > 0:
                    wanted += 1
                    lane.append(request)
                else:
                    self.finish(request)
            if lane:
                break  # the next lane has to wait for this one
        self.wanted -= wanted
        return targets

    def delivered(self, request: WaitingRequest, count: int, size: int, now_ns: int) -> None:
        """``count`` messages of ``size`` bytes together went to a request."""
        before = max(request.left, 1)
        request.left -= count
        request.delivered += count
        request.quiet_since_ns = now_ns
        if request.bounded:
            request.bytes_left -= size
        self.wanted -= before - max(request.left, 1)

    def finish(self, request: WaitingRequest) -> None:
        """A request is over, whether it stands in a lane or was popped."""
        if request.waiting:
            request.waiting = False
            self.waiting -= 1
            self.wanted -= max(request.left, 1)
            self._no_wait -= request.no_wait
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
            elif request.heartbeat_ns:
                is_quiet = request.quiet_since_ns + request.heartbeat_ns <= now_ns
                if is_quiet:
                    request.quiet_since_ns = now_ns
                self._push_time(request.quiet_since_ns + request.heartbeat_ns, request)
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
            if len(lane) > 2 * self.waiting + _SWEEP_AT:
                alive = [request for request in lane if request.waiting]
                lane.clear()
                lane.extend(alive)
