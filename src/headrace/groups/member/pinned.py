"""What a pinned instance says to its consumer: that it is there, what it still works at, and that it goes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ...api import names
from ...api.acks import IN_PROGRESS
from ...api.base import encode
from ...api.consumers import PullRequest
from ...api.times import parse_time
from ...client.seam import api_of
from ...errors import HeadraceError, JetStreamApiError, NoRespondersError
from ..record.names import PRIORITY_GROUP
from .lease import Lease

if TYPE_CHECKING:
    from ...api.consumers import ConsumerInfo
    from ...client import Consumer, JetStream, JetStreamMessage, Message
    from .loop_watch import LoopWatch


OVERDUE_S: Final = 0.05  # a loop that is free is not so late
KEPT_LATELY: Final = 3  # times the time between renewals


class Renewal:
    """Keeps one lease, for as long as it can be kept.

    Args:
        pinned: asks the server.
        every_s: the longest time between two renewals, which also say what is in progress.
        watch: knows when the loop was kept last.
    """

    def __init__(self, pinned: Pinned, lease: Lease, every_s: float, watch: LoopWatch) -> None:
        self._pinned = pinned
        self._lease = lease
        self._every_s = every_s
        self._watch = watch
        self._loop = asyncio.get_running_loop()
        self._since: float | None = None  # when it is under way
        self._is_over = False
        self._done: asyncio.Future[None] | None = None  # where somebody waits

    async def keep(self) -> None:
        """Renew again and again; returns when the lease is lost. Raises NoRespondersError: the consumer is
        gone."""
        time = self._loop.time
        try:
            while True:
                await asyncio.sleep(min(self._every_s, self._lease.due_s(time())))
                self._since = time()
                is_kept = await self._pinned.renew(self._lease)
                self._since = None
                if not is_kept:
                    return
                self._tell()
        finally:
            self._is_over = True
            self._tell()

    def is_overdue(self) -> bool:
        """Whether it should have been done by now, had no handler kept the loop."""
        if self._is_over:
            return False
        if self._done is not None:
            return True  # one waits already, and so do all
        if self._since is not None:  # the next one may keep the loop as the last one did
            return self._watch.kept_at > self._since - KEPT_LATELY * self._every_s
        return self._lease.late_s(self._loop.time()) >= OVERDUE_S

    async def wait(self) -> None:
        """Until it is done, or the lease over."""
        while self.is_overdue():
            if self._done is None:
                self._done = self._loop.create_future()
            await asyncio.shield(self._done)

    def _tell(self) -> None:
        done, self._done = self._done, None
        if done is not None:
            done.set_result(None)


AGAIN_S: Final = 0.05
HONOURED: Final = frozenset({names.MESSAGE_SIZE_EXCEEDS, names.EXCEEDED_MAX_WAITING})
EXPIRED: Final = 408


class Pinned:
    """The calls of one instance to the consumer it is pinned to. It decides nothing.

    Args:
        pin_id: what the server called us by.
        say_in_progress: says of everything that came, and was not answered, that it is in progress.
        heard_at: the loop's time at which something came last.
    """

    def __init__(
        self,
        js: JetStream,
        consumer: Consumer,
        pin_id: str,
        say_in_progress: Callable[[], None],
        heard_at: Callable[[], float],
    ) -> None:
        self._connection = js.connection
        self._say_in_progress = say_in_progress
        self._heard_at = heard_at
        self._consumer = consumer
        self._pin_id = pin_id
        self._subject = api_of(js).subject(
            "CONSUMER", "MSG", "NEXT", consumer.stream_name, consumer.name
        )
        # It asks for nothing that could be delivered, one message of one byte, and ends at once.
        self._pull = encode(
            PullRequest(batch=1, max_bytes=1, expires=0.001, group=PRIORITY_GROUP, id=pin_id)
        )

    async def renew(self, lease: Lease) -> bool:
        """Have the server keep the pin for us. False: it is lost, or was not renewed in time.

        A consumer that nobody is pinned to answers the pull the same way, so it is asked who is.

        Raises NoRespondersError: the consumer is gone.
        """
        time = asyncio.get_running_loop().time
        while lease.holds(sent := time()):
            try:
                came = await self._keep(sent, lease.until - sent)
                if came is None or await self._info() is None:
                    return False
            except NoRespondersError:
                raise
            except JetStreamApiError:
                return False
            except HeadraceError:  # the link is lost: it may be back in time
                await asyncio.sleep(max(0.0, min(AGAIN_S, lease.until - time())))
                continue
            return lease.answered(sent, time(), came=came)
        return False

    async def _keep(self, sent: float, timeout: float | None = None) -> bool | None:
        """Pull, having said that what came before is in progress. Whether something came since; None: the pin
        is not ours."""
        self._say_in_progress()
        answer = await self._connection.request(self._subject, self._pull, timeout=timeout)
        return self._heard_at() >= sent if _is_honoured(answer) else None

    async def verify(self, lease: Lease) -> ConsumerInfo | None:
        """What the server says of the consumer; None if the pin is not ours.

        Where it is time to renew the lease it is made new: a pull, and then the server's word that the pin is
        ours still.
        """
        time = asyncio.get_running_loop().time
        for _ in range(2):  # the first may leave it as it is, if something came meanwhile
            sent = time()
            if lease.due_s(sent):
                break
            came = await self._keep(sent)
            info = await self._info() if came is not None else None
            if came is None or info is None:
                return None
            lease.seen(sent, came=came)
            if not came:
                return info
        return await self._info()

    async def verify_kept(self, lease: Lease) -> ConsumerInfo | None:
        """As ``verify``, where the lease is renewed beside this: a look does unless little is left of it."""
        if lease.lasts(asyncio.get_running_loop().time()):
            return await self._info()
        return await self.verify(lease)

    async def is_ours(self) -> bool:
        """Whether the server says so. Raises NoRespondersError: the consumer is gone."""
        return await self._info() is not None

    async def _info(self) -> ConsumerInfo | None:
        info = await self._consumer.info()
        pins = {group.group: group.pinned_client_id for group in info.priority_groups}
        return info if pins.get(PRIORITY_GROUP) == self._pin_id else None

    @staticmethod
    def number(info: ConsumerInfo) -> int:
        """The generation's number: when the pin was given."""
        stamps = {group.group: group.pinned_ts for group in info.priority_groups}
        return parse_time(stamps[PRIORITY_GROUP])

    async def confirm(self, message: JetStreamMessage) -> None:
        """Return once the server has worked through every answer that was sent so far.

        They are worked through in their order, so one more with a reply does it. It says nothing new of the
        message.
        """
        await self._connection.request(message.reply, IN_PROGRESS)

    async def let_go_to_others(self, sent_back: int) -> bool:
        """Have another instance pinned, if one waits. True: none does, we are still pinned, and nothing is
        under way but what we have sent back: nothing waits for a delay that a handler asked for."""
        info = await self._info()
        if info is None:
            return False
        if not info.num_waiting and info.num_ack_pending <= sent_back:
            return True
        await self._consumer.unpin(PRIORITY_GROUP)
        return False

    async def let_go(self) -> None:
        """Have another instance pinned, if it is still us."""
        if await self._info() is not None:
            await self._consumer.unpin(PRIORITY_GROUP)


def _is_honoured(answer: Message) -> bool:
    """Whether a pull went as far as keeping the pin: the server looks at the pin before it counts who waits
    and what there is to deliver. Another answer tells of a pin, or a consumer, that is another's or gone."""
    headers = answer.headers
    return headers.status == EXPIRED or (headers.status, headers.description) in HONOURED
