"""What a windowed publisher does from the first sign of trouble until everything flows again.

The signs of trouble: a message was refused because no stream, or no leader, has its subject; the connection
was lost; or, where sending again is harmless, a message is overdue. Then nothing new is sent. The leader of
JetStream is asked which stream has a subject; if none has, its messages fail at once. For the rest a **wave**
is sent after a pause: the first message of each subject, and no other. When the whole wave is acknowledged,
the streams are there and store messages, and the rest follows in the order of its numbers. So a message is
never sent behind one of the same subject that is known not to be stored.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from ...errors import ConnectionClosedError, HeadraceError, TimeoutUnknownError
from ..net.leaders import no_leader, pauses
from ..net.session import LeaderWait
from .stream_of_subject import Who, nobody_has, who_has

if TYPE_CHECKING:
    from ..jetstream.calls import Api
    from .publisher import PublisherSettings
    from .window import WindowPublisher

C = TypeVar("C")

SILENCE_S: Final = 1.0
WAVE_MAX: Final = 256  # subjects
DRAIN_S: Final = 0.25  # without an answer
SCANNED_MAX: Final = 4096  # messages looked at for it: those in front suffice


class Recovery(Generic[C]):
    """The recovery of one publisher. ``C`` is what its commands are.

    Attributes:
        stalled: whether nothing new is sent now.
        count: how often that began.
    """

    def __init__(
        self, publisher: WindowPublisher[C], api: Api, settings: PublisherSettings
    ) -> None:
        self._publisher = publisher
        self._session = api.session
        self._api = api
        self._wait = LeaderWait(api.session.waits)
        self._limit = settings.delivery_timeout  # then a message is given up
        self._ack_timeout = settings.ack_timeout
        self._retries = settings.retries  # when it cannot be asked who has a subject
        # Whether the stream drops what it has, so that everything may be sent again.
        self._deduplicated = settings.deduplicate and settings.retries > 0
        self.stalled = False
        self.count = 0
        self._task: asyncio.Task[None] | None = None
        self._forget()

    def _forget(self) -> None:
        self._refused: dict[str, dict[bytes, None]] = {}  # certainly not stored; by subject
        self._wave: dict[bytes, None] = {}  # sent and not answered
        self._wave_done: asyncio.Future[None] | None = None
        self._was_refused = False  # something, since all flowed
        self._wave_refused = False  # some of it, or of what was sent before it
        self._waved = False  # all before it may be sent again, as far as it may be at all
        self._held_from = 0  # no message from this number on was sent, except in waves
        self._sent_below = 0  # and all up to this one were, over this link
        self._marks: deque[tuple[int, float]] = deque()  # what was sent below a number, was before
        self._of = "the stream"
        self._leaderless = False  # somebody said that he does not lead
        self._untold = 0

    # Signs of trouble

    def refused(self, key: bytes, subject: str, *, leaderless: bool) -> None:
        """A message was refused and is not stored: nobody listens, or the server is not the leader."""
        self._wave.pop(key, None)
        self._wave_refused = self._was_refused = True
        self._refused.setdefault(subject, {})[key] = None
        self._leaderless = self._leaderless or leaderless
        if not self.stalled:
            self._stall()

    @property
    def pace(self) -> float:
        """Seconds after which a message without an answer, sent before the last look, is overdue.

        Silence in a cluster is a sign of an election, which takes at least four seconds: what is stopped
        before it is over cannot be stored before what was lost.
        """
        in_cluster = self._deduplicated and self._session.info.cluster
        return min(self._ack_timeout, SILENCE_S) if in_cluster else self._ack_timeout

    def doubt(self, below: int) -> None:
        """Messages with lower numbers are overdue; all may be sent again."""
        self._marks.append((below, self._session.loop.time() - SILENCE_S))
        self._stall()
        self._begin(wave_first=True)

    def lost(self) -> None:
        """The connection was lost, and with it all answers under way."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._wave.clear()
        if not self.stalled:
            self._stall()
        self._sent_below = 0
        if not self._deduplicated:
            self._held_from = 0  # who may not be sent again was failed already

    def restored(self) -> None:
        """There is a connection again."""
        if self._publisher.unacked:
            self._begin(wave_first=True)
        else:
            self._resume(found=True)

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._wait.end(found=False)
        self._forget()

    def _stall(self) -> None:
        self.stalled = True
        self.count += 1
        self._publisher.hold()
        self._held_from = self._sent_below = self._publisher.sent
        self._marks.append((self._held_from, self._session.loop.time()))

    # What is known of a message

    def unsent(self) -> set[bytes]:
        """The messages that are not under way, and certainly not stored."""
        if not self.stalled:
            return set()
        held = (key for key in self._publisher.unacked if int(key) >= self._held_from)
        refused = (key for keys in self._refused.values() for key in keys)
        return {*held, *refused} - self._wave.keys()

    def overdue(self, below: int) -> list[bytes]:
        """The messages with lower numbers that are under way."""
        unsent = self.unsent()
        keys = takewhile(lambda key: int(key) < below, self._publisher.unacked)
        return [key for key in keys if key not in unsent]

    def _to_send(self) -> Iterator[bytes]:
        """What has to be sent, in order: everything if that is harmless, otherwise what was not stored."""
        unacked = self._publisher.unacked
        if self._deduplicated and self._waved:
            return iter(unacked)
        unsent = self.unsent()
        return (key for key in unacked if key in unsent)

    # Recovering

    def look(self) -> None:
        """Something was answered."""
        unacked = self._publisher.unacked
        if self._wave:
            self._wave = {key: None for key in self._wave if key in unacked}
        if not self._wave and self._wave_done is not None and not self._wave_done.done():
            self._wave_done.set_result(None)
        if self._task is None and self._session.link is not None:
            self._begin(wave_first=False)

    def _begin(self, *, wave_first: bool) -> None:
        self._task = self._session.loop.create_task(
            self._recover(wave_first), name="headrace publisher recovery"
        )

    async def _recover(self, wave_first: bool) -> None:
        with suppress(ConnectionClosedError):  # the publisher is told, too
            self._resume(found=await self._waves(wave_first))

    async def _waves(self, wave_first: bool) -> bool:
        """Until one is acknowledged; False if nothing was left to wait for before."""
        steps = pauses()
        if not wave_first:
            if not await self._find_out():
                return False
            await asyncio.sleep(next(steps))
        while self._send_wave():
            pause = next(steps)
            await self._wait_for_wave(pause)
            if not self._wave and not self._wave_refused:
                await self._drain()
                return True
            was_refused = self._wave_refused
            if not await self._find_out():
                return False
            if was_refused:
                await asyncio.sleep(pause)
        return False

    async def _find_out(self) -> bool:
        """Ask who has what was refused, or is not answered. What nobody has fails.

        False if nothing is left to be waited for.
        """
        while True:
            subject = next(iter(self._refused), None) or self._silent_subject()
            if subject is None:
                return False
            if self._leaderless:
                self._leaderless = False
                self._of = f"the stream of {subject!r}"
                break
            answer = await who_has(self._api, subject)
            self._untold += answer.who is Who.UNTOLD
            if answer.who is Who.NOBODY or self._untold > self._retries:
                self._fail_subject(subject)
                continue
            self._of = answer.of
            break
        self._wait.begin(self._of)
        return True

    def _silent_subject(self) -> str | None:
        publisher = self._publisher
        key = next((key for key in self._wave if key in publisher.unacked), None)
        return publisher.subject_of(publisher.unacked[key]) if key is not None else None

    def _fail_subject(self, subject: str) -> None:
        publisher = self._publisher
        keys = list(self._refused.pop(subject, {})) or [
            key for key in self._wave if publisher.subject_of(publisher.unacked[key]) == subject
        ]
        for key in keys:
            self._wave.pop(key, None)
            if key in publisher.unacked:  # not acknowledged since, as one sent twice may be
                publisher.fail(key, nobody_has(subject))
        publisher.wake()

    def _send_wave(self) -> bool:
        """Send the first message of each subject. False if none is left to send."""
        publisher = self._publisher
        self._expire()
        self._marks.append((publisher.sent, self._session.loop.time()))
        self._waved, self._wave_refused = True, False
        front: dict[str, bytes] = {}
        for key in islice(self._to_send(), SCANNED_MAX):
            front.setdefault(publisher.subject_of(publisher.unacked[key]), key)
            if len(front) == WAVE_MAX:
                break
        for subject, key in front.items():
            if (keys := self._refused.get(subject)) is not None:
                keys.pop(key, None)
                if not keys:
                    del self._refused[subject]
        self._wave.update(dict.fromkeys(front.values()))
        publisher.resend(list(front.values()))
        return bool(self._wave)

    async def _wait_for_wave(self, pause: float) -> None:
        """Until all of it is answered; where it may be sent again, not for long."""
        self._wave_done = self._session.loop.create_future()
        await asyncio.wait([self._wave_done], timeout=pause if self._deduplicated else None)

    async def _drain(self) -> None:
        """What was under way before the wave may be answered yet: a server that was only slow has it all."""
        if self._was_refused or not self._deduplicated:
            return
        publisher, acked = self._publisher, -1
        unacked = publisher.unacked
        while unacked and int(next(iter(unacked))) < self._sent_below and publisher.acked != acked:
            acked = publisher.acked
            await asyncio.sleep(DRAIN_S)

    def _resume(self, *, found: bool) -> None:
        """Everything may flow again."""
        publisher = self._publisher
        keys = list(self._to_send())
        self._wait.end(found=found)
        self._task = None
        self.stalled = False
        publisher.release(anew=self._waved)
        self._forget()
        publisher.resend(keys)
        publisher.wake()

    # Time

    def _expire(self) -> None:
        """Give up what has waited for too long."""
        publisher, marks = self._publisher, self._marks
        now, below = self._session.loop.time(), 0
        while marks and marks[0][1] + self._limit <= now:
            below = marks.popleft()[0]
        if not below:
            return
        unsent = self.unsent()
        for key in [key for key in publisher.unacked if int(key) < below]:
            certain = key in unsent
            if not (certain or self._deduplicated):
                continue  # it was sent, and is not sent again: the publisher waits for its answer
            error: HeadraceError = no_leader(self._of, self._limit)
            if not certain:
                error = TimeoutUnknownError(
                    f"no ack within {self._limit} s; it may be stored or not"
                )
            self._wave.pop(key, None)
            publisher.fail(key, error)
        for keys in self._refused.values():
            for key in [key for key in keys if key not in publisher.unacked]:
                del keys[key]
        self._refused = {subject: keys for subject, keys in self._refused.items() if keys}
        publisher.wake()
