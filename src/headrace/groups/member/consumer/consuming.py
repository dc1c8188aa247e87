"""One instance at its consumer: waiting to be pinned, at work, and on its way out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from ....api import names
from ....api.base import encode
from ....api.envelope import decode_response
from ....api.messages import GetMessageRequest, GetMessageResponse
from ....client.seam import ManagedConsumption, answer_of, api_of, send_back
from ....errors import (
    ConnectionClosedError,
    HeadraceError,
    HeartbeatMissedError,
    JetStreamApiError,
    NoRespondersError,
    PullError,
)
from ...errors import GroupError, HandlerFailedError
from ...message import delivered
from ...record.names import PRIORITY_GROUP
from ...server.asking import together
from ..handlers.on_loop import TAKEN_AT_ONCE, work_of
from ..intake import Intake
from ..lease import Generation, Lease, Takeover
from ..pinned import Pinned, Renewal
from .conflicts import delete_unused
from .machine import Event, Gone, Lost, Release

if TYPE_CHECKING:
    from ....api.consumers import ConsumerInfo
    from ....client import Consumer, JetStream, JetStreamMessage
    from ...message import GroupMessage
    from ..config import Plan
    from ..handlers.handling import Work
    from ..shared import Shared


NOT_FOUND: Final = 404


async def until_removed(
    js: JetStream, stream: str, sequence: int, seconds: float, goes_on: Callable[[], bool]
) -> bool:
    """Wait until ``stream`` has no message with this sequence; False if it has, after ``seconds`` or when
    ``goes_on`` says no. A server that does not answer is asked again. Raises ConnectionClosedError."""
    time = asyncio.get_running_loop().time
    subject = api_of(js).subject("STREAM", "MSG", "GET", stream)
    request = encode(GetMessageRequest(seq=sequence))
    ends, pause = time() + seconds, ASK_FIRST_S
    while goes_on() and (left := ends - time()) > 0:
        try:
            answer = await js.connection.request(subject, request, timeout=left)
            decode_response(answer.payload, GetMessageResponse)
        except ConnectionClosedError:
            raise
        except JetStreamApiError as error:
            if error.code == NOT_FOUND:
                return True
        except HeadraceError:
            pass  # no leader, or the link is lost: there may be one again in time
        await asyncio.sleep(max(0.0, min(pause, ends - time())))
        pause = min(2 * pause, ASK_MAX_S)
    return False


ASK_FIRST_S: Final = (
    0.02  # how long until a former owner's messages are asked for again, doubling …
)
ASK_MAX_S: Final = 0.5  # … up to here
TERMED: Final = "term"  # as a message notes that it was answered
REDELIVERIES_AWAITED: Final = 3  # one may be lost with a link
LOOKS_AFTER_S: Final = (0.0, 0.5, 2.0)
"""Behind the first pull, then each behind the one before: by the last, a server has looked at the pull."""


class Consuming:
    """From the first pull to the loss of the pin, or of the consumer.

    ``outcome`` says how it ended, with an event for the machine. Handlers that run then go on; ``settled``
    returns when they are done. ``deletion``: of the consumer, which the server was asked for when we let go;
    what is asked on the same connection from then on comes behind it.
    """

    def __init__(self, shared: Shared, consumer: Consumer, plan: Plan) -> None:
        loop = asyncio.get_running_loop()
        self._shared = shared
        self._consumer = consumer
        self._plan = plan
        self._time = loop.time
        self._since = loop.time()
        self._work: Work | None = None
        self._pinned: Pinned | None = None
        self._intake: Intake | None = None
        self._leaving = False
        self._failure: PullError | None = None
        self.generation: Generation | None = None
        self.deletion: asyncio.Task[None] | None = None
        self.outcome: asyncio.Future[Event] = loop.create_future()
        consumer.on_pinned(self._on_pinned)
        consumer.on_unpinned(self._lose)
        self._consumption = ManagedConsumption(
            consumer,
            expires=shared.settings.pull_s,
            group=PRIORITY_GROUP,
            on_error=self._trouble,
            on_failed=self._failed,
        )
        self._takeover: Takeover[JetStreamMessage] | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._worker = self._spawn(self._run(), "work")
        self._look: asyncio.Task[None] | None = None
        if not (shared.settings.is_static or shared.js.connection.server_info.headrace):
            self._look = self._spawn(self._look_behind(), "look")

    def _spawn(self, work: Coroutine[Any, Any, None], what: str) -> asyncio.Task[None]:
        name = f"{what} of {self._shared.label} at {self._plan.consumer}"
        return asyncio.get_running_loop().create_task(work, name=name)

    @property
    def is_active(self) -> bool:
        """Whether it is pinned, and handles messages."""
        return self.generation is not None and not self.outcome.done()

    def current(self) -> GroupMessage | None:
        """A message that is being handled on the loop."""
        return None if self._work is None else self._work.current()

    def is_run_by(self, caller: object) -> bool:
        """Whether ``caller`` is a task that runs a handler of this."""
        lanes = () if self._work is None else self._work.tasks()
        return caller is not None and (caller is self._worker or caller in lanes)

    def works_with(self, observer: object) -> bool:
        """Whether ``observer`` of the connection is what feeds this."""
        return self._consumption.is_fed_by(observer)

    # The end

    def _finish(self, event: Event, *, gives_back: bool = False) -> None:
        """Begin nothing more, from this very moment; what was not begun may go to the next owner."""
        if self.outcome.done():
            return
        self.outcome.set_result(event)
        if self._work is not None:
            self._work.stop()
        if gives_back and self._may_return():
            self._consumption.give_back(self._not_begun())
        else:
            self._consumption.abandon()
        for task in (self._keeper, self._look):
            if task is not None and task is not asyncio.current_task():
                task.cancel()
        if self.generation is not None:
            self.generation.lease.end()
            self._shared.ended(self.generation)

    def _may_return(self) -> bool:
        """Whether what was not begun can be sent back, without taking it from another owner."""
        if not self._shared.settings.acks or not self._consumption.is_linked:
            return False
        return self.generation is None or self.generation.lease.may_return(self._time())

    def _not_begun(self) -> list[JetStreamMessage]:
        """What was taken from the consumption and not begun, the first of it first."""
        messages = self._work.waiting() if self._work is not None else []
        return messages if self._takeover is None else messages + self._takeover.in_order()

    def _on_pinned(self, pin_id: str) -> None:
        if self._pinned is not None:  # another pin: the one before was lost in between
            self._lose()

    def _lose(self) -> None:
        forgotten = self._consumption.was_cut_off
        self._finish(Lost(forgotten=forgotten), gives_back=not self._leaving)

    def _trouble(self, error: Exception) -> None:
        """Of the consumption: what does not end it."""
        if isinstance(error, NoRespondersError):
            self._finish(Gone(self._is_settled()))
        elif not isinstance(error, HeartbeatMissedError) or self._shared.silence.is_news(
            self._time()
        ):
            self._shared.report(error)

    def _failed(self, error: Exception) -> None:
        """The consumption has ended. A consumer that was deleted may be made again by another instance and
        deliver the same messages, whose acknowledgement by us would be taken for that of theirs."""
        if isinstance(error, PullError) and not self.outcome.done():
            self._failure = error
            self._stop_work()
            if self.generation is not None:
                self.generation.lease.end()

    async def _look_behind(self) -> None:
        """Look behind the first pull whether its consumer is still there.

        Who leaves deletes it, and nats-server never answers a pull that it had read, but not looked at, by
        then; a busy one may have told us before the deletion that the consumer is there. Missing heartbeats
        would tell, half a minute later. One that was made anew meanwhile may have our pull: by a creation of
        ours that was asked for twice.
        """
        for pause in LOOKS_AFTER_S:
            await asyncio.sleep(pause)
            if self.generation is not None:
                return
            try:
                await self._consumer.info()
            except JetStreamApiError as error:
                if error.code == NOT_FOUND and self.generation is None:
                    self._finish(Gone(self._is_settled()))
                    return
            except HeadraceError:
                pass  # there is no answer, of which the consumption is told

    def _is_settled(self) -> bool:
        return self._work is not None or self._time() - self._since > self._shared.settings.pull_s

    async def settled(self) -> None:
        """Until no handler runs any more."""
        await asyncio.wait([self._worker])

    # Work

    async def _run(self) -> None:
        try:
            first = await self._consumption.next_batch(TAKEN_AT_ONCE)
            if first and not self.outcome.done() and await self._take_over(first):
                assert self._work is not None
                await self._work.run()
                if self._failure is not None:
                    raise self._failure
                if not self._leaving:
                    self._lose()  # the lease ended, or the consumption
        except PullError as error:
            is_deleted = error.description.startswith(names.CONSUMER_DELETED[1])
            # Who leaves deletes it, or the successor does; who comes while the last one leaves makes it anew.
            if not (is_deleted and (self._leaving or self.generation is None)):
                self._shared.report(error)
            self._finish(Gone(self._is_settled()))
        except NoRespondersError:
            self._finish(Gone(self._is_settled()))
        except (HandlerFailedError, ConnectionClosedError) as error:
            self._stop_work()
            self._shared.failed(error)
        except JetStreamApiError as error:
            self._shared.report(error)
            self._finish(Gone(self._is_settled()))
        except HeadraceError as error:  # no answer, in time, to what must be known at the beginning
            self._shared.report(error)
            self._finish(Lost())
        except Exception as error:
            self._stop_work()
            self._shared.failed(error)

    def _stop_work(self) -> None:
        if self._work is not None:
            self._work.stop()

    async def _take_over(self, first: list[JetStreamMessage]) -> bool:
        """Make sure that the pin is ours, and that nobody else has messages. False: it is not."""
        shared, pin_id = self._shared, self._consumer.pin_id
        self._pinned = pinned = self._pinned_as(pin_id)
        self._takeover = Takeover(first)
        lease = Lease(shared.settings.lease_s, self._since)
        info = await pinned.verify(lease)
        if info is None or self.outcome.done():
            self._lose()
            return False
        number = pinned.number(info)
        is_copied = not shared.settings.is_static
        self.generation = Generation(number, self._plan.partitions, lease, self._time, is_copied)
        settings = shared.settings
        renewal = Renewal(pinned, lease, settings.ack_wait / 3, shared.watch)
        self._keeper = self._spawn(self._keep(renewal), "pin")
        self._intake = intake = Intake(
            self._consumption,
            self._gather,
            may_overtake=settings.max_ack_pending != 1,
            renewal=renewal,
            copied=shared.copied,
        )
        messages = await self._gather(first, info)
        if messages is None:
            return False
        self._work = work_of(shared)(shared, intake, self.generation, messages)
        shared.began(self.generation)
        return True

    async def _gather(
        self, first: list[JetStreamMessage], info: ConsumerInfo | None = None
    ) -> list[JetStreamMessage] | None:
        """What came, and whatever else is under way and not acknowledged yet, in the stream's order. None: we
        no longer own it."""
        assert self._pinned is not None
        assert self.generation is not None
        self._takeover = takeover = Takeover(first)
        pause, came, waited_since = ASK_FIRST_S, 0, self._time()
        while info is None or not await self._has_come(takeover, info, pause):
            if self._leaving or self.outcome.done():
                return None
            if takeover.came_again() > came:
                came, waited_since = takeover.came_again(), self._time()
            elif info is not None and self._time() - waited_since > self._patience_s:
                self._shared.report(self._goes_on_without(info))
                info = None
                break
            if info is not None:
                pause = min(2 * pause, ASK_MAX_S)
            info = await self._pinned.verify(self.generation.lease)
            if info is None:
                self._lose()
                return None
        if self._leaving or self.outcome.done():
            return None
        self._takeover = None
        assert self._intake is not None
        self._intake.follow(takeover.last_delivery())
        # Without acks the floor rises with the deliveries.
        floor = info.ack_floor.stream_seq if info is not None and self._shared.settings.acks else 0
        messages = takeover.in_order(floor)
        copied = self._shared.copied
        return messages if copied is None else await copied.new_of(messages)

    @property
    def _patience_s(self) -> float:
        settings = self._shared.settings
        return settings.pin_s + REDELIVERIES_AWAITED * settings.redelivery_s

    def _goes_on_without(self, info: ConsumerInfo) -> Exception:
        return GroupError(
            f"{self._shared.label} goes on at {self._plan.consumer} though not all of the "
            f"{info.num_ack_pending} messages that wait for their acks have come to it within "
            f"{self._patience_s:g} s, such as what was sent back with a long delay; they come out of order"
        )

    async def _has_come(
        self, takeover: Takeover[JetStreamMessage], info: ConsumerInfo, seconds: float
    ) -> bool:
        """Take what has come since the look that ``info`` is, and what comes for this long; whether that is
        all that the look has counted. What was delivered while the answer was on its way came before it."""
        try:
            async with asyncio.timeout(seconds):
                while True:
                    while self._consumption.buffered:
                        takeover.add_all(await self._consumption.next_batch())
                    if takeover.is_complete(info, self._unanswered()):
                        return True
                    if not (messages := await self._consumption.next_batch()):
                        return False
                    takeover.add_all(messages)
        except TimeoutError:
            return False

    # The pin

    def _pinned_as(self, pin_id: str) -> Pinned:
        heard_at = lambda: self._consumption.last_heard  # noqa: E731
        return Pinned(self._shared.js, self._consumer, pin_id, self._say_in_progress, heard_at)

    async def _keep(self, renewal: Renewal) -> None:
        try:
            await renewal.keep()
            self._lose()
        except NoRespondersError:
            self._finish(Gone(self._is_settled()))
        except Exception as error:
            self._finish(Lost())
            self._shared.failed(error)

    def _say_in_progress(self) -> None:
        """Have none delivered again of what waits here, or is being handled."""
        if not self._shared.settings.acks:
            return
        held = self._unanswered()
        if self._takeover is not None:
            held += self._takeover.in_order()
        self._consumption.say_in_progress(held)

    def _unanswered(self) -> list[JetStreamMessage]:
        """What is being handled, and what came and was not begun."""
        if self._work is None:
            return []
        held = (*self._work.running(), *self._work.waiting())
        return [message for message in held if not message.is_answered]

    # Leaving

    def begin_no_more(self) -> None:
        """``release`` follows: no handler begins from now on."""
        self._leaving = True
        if (
            self.generation is None
        ):  # another pull might reach the next consumer of this name, and pin us
            self._consumption.pull_no_more()
        elif self._pinned is not None:
            self.generation.asks = self._pinned.is_ours
        self._stop_work()

    async def release(self, how: Release) -> bool:
        """Let go. True: the consumer is deleted, or will be (``deletion``). Errors are reported: what could
        not be done in order does itself, later."""
        self.begin_no_more()
        deleted = False
        try:
            stays = how in (Release.HAND_OVER, Release.DELETE)
            if stays and self.generation is None and not self.outcome.done():
                await self._receive_last()
            is_orderly = self.is_active and stays
            if is_orderly and how is Release.HAND_OVER:
                await self._hand_over()
            elif is_orderly:
                deleted = await self._give_up()
            else:
                deleted = await self._leave(how)
        except HeadraceError as error:
            self._shared.report(error)
        finally:
            self._finish(Lost())
        await self.settled()
        return deleted

    async def _receive_last(self) -> None:
        """Standing by, pull no more: what is under way by now has pinned us, and needs handing over, too.
        Once we are pinned, and leave, nobody takes what came after the first of it: it is handed over."""
        drained = self._spawn(self._consumption.drain(), "last pull")
        try:
            async with asyncio.timeout(self._shared.settings.ack_wait):
                await asyncio.wait([drained, self._worker], return_when=asyncio.FIRST_COMPLETED)
                if drained.done():
                    await drained
                await self.settled()
        except TimeoutError:
            return  # the link is gone without a word: the pin will time out
        finally:
            drained.cancel()

    async def _hand_over(self) -> None:
        """Another instance goes on with the consumer, and at once."""
        sent_back = self._send_back() + self._consumption.buffered
        await self._consumption.stop()
        await self.settled()
        await self._confirm()
        if not self.is_active or self._pinned is None:
            return
        if self._shared.settings.is_static or self._plan.is_shared:
            await self._pinned.let_go()
        elif await self._pinned.let_go_to_others(sent_back):
            # Nobody goes on with it, and it holds nothing that is not in the work queue. While we are pinned
            # nobody else is given anything of it.
            await self._until_removed()
            if self.is_active:
                await self._delete()

    async def _give_up(self) -> bool:
        """Delete the consumer, once what was handled is acknowledged; its messages are delivered again to
        whoever owns their partitions then."""
        self._consumption.abandon()
        await asyncio.wait([self._worker], timeout=self._shared.settings.ack_wait)
        # Asked at once, as every round trip here is one in which nobody handles the messages.
        await together(self._confirm(), together(self._until_removed(), self._leave_time()))
        if not self.is_active:
            return False
        self.deletion = self._spawn(self._delete(), "deletion")
        await asyncio.sleep(0)  # now it is sent
        return True

    async def _leave_time(self) -> None:
        """Ask whether we are still pinned, as an admin may have given the pin to another instance. If we were
        waiting for the former owner, it may still be handling what it was given."""
        takeover, pinned, generation = self._takeover, self._pinned, self.generation
        if pinned is None or generation is None:
            return
        ends, pause = self._time() + self._shared.settings.redelivery_s, ASK_FIRST_S
        while self.is_active:
            info = await pinned.verify_kept(generation.lease)
            if info is None:
                self._finish(Lost())
                return
            if takeover is None or takeover.has_no_former(info):
                return
            if await self._has_come(takeover, info, 0.0):
                return
            if self._time() >= ends:
                return
            await asyncio.sleep(pause)
            pause = min(2 * pause, ASK_MAX_S)

    async def _leave(self, how: Release) -> bool:
        """There is nothing in order to be handed over."""
        pin_id = self._consumer.pin_id
        self._finish(Lost())
        if how is Release.HAND_OVER and pin_id:
            await self._pinned_as(pin_id).let_go()
        if how is Release.HAND_OVER and not (
            self._shared.settings.is_static or self._plan.is_shared
        ):
            await self._delete_unused()
        return False

    async def _delete_unused(self) -> None:
        """Delete a consumer that held nothing for us and serves nobody else, so that who is given its
        partitions, should the member be dropped, need not wait until the server does. Whoever joins in
        between makes it anew."""
        try:
            await delete_unused(self._consumer, self._time)
        except JetStreamApiError as error:
            if error.code != 404:
                raise

    async def _delete(self) -> None:
        try:
            await self._consumer.delete()
        except JetStreamApiError as error:
            if error.code != 404:
                raise

    async def _confirm(self) -> None:
        last = self._work.last if self._work is not None else None
        if last is not None and self._pinned is not None and self._shared.settings.acks:
            await self._pinned.confirm(delivered(last))

    async def _until_removed(self) -> None:
        """What was acknowledged last has left the work queue; if not in time, it may be delivered again."""
        shared, last = self._shared, self._work.last if self._work is not None else None
        if (
            last is None
            or shared.settings.is_static
            or answer_of(delivered(last)) not in (True, TERMED)
        ):
            return
        sequence = last.metadata.stream_seq
        await until_removed(
            shared.js, shared.stream, sequence, shared.settings.ack_wait, lambda: self.is_active
        )

    def _send_back(self) -> int:
        """What was not begun is delivered to the next owner at once; the first of it first. How many."""
        messages = self._not_begun()
        if self._shared.settings.acks and self.is_active:
            send_back(messages)
        return len(messages)

    async def kill(self) -> None:
        """End at once: what runs is cancelled."""
        self._finish(Lost())
        tasks = [task for task in (self._worker, self._keeper, self._look) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
