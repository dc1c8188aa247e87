"""One consumer of a member, carried through its life: what ``machine`` decides is done here."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from ....api.errors import Errors
from ....errors import ConnectionClosedError, HeadraceError, JetStreamApiError
from ...errors import GroupConfigurationError, GroupError
from ...record.names import QUERY_ROLE, ROLE
from ...server.asking import Asking
from .conflicts import (
    advice,
    change_times,
    is_in_use,
    is_of_another,
    is_pulled_from,
    remove_orphans,
)
from .consuming import Consuming
from .machine import (
    Created,
    Deleted,
    Differs,
    Elapsed,
    End,
    Event,
    Failed,
    InUse,
    Overlaps,
    Pause,
    Phase,
    Read,
    Release,
    Released,
    State,
    WaitForPinned,
    after,
    retry_s,
)

if TYPE_CHECKING:
    from ....api.consumers import ConsumerConfig, ConsumerInfo
    from ....client import Consumer
    from ..config import Plan
    from ..shared import Shared

CREATED_AGAIN_S: Final = 0.025
SPREAD_S: Final = 0.1
MADE_ANEW: Final = 5  # times, before it is said that it is of no use
LEFT_AFTER: Final = 2  # attempts, before anybody looks for consumers that nobody is left to delete
STANDBY_MS: Final = (400, 499)  # others wait as long
_OVERLAPS: Final = Errors.CONSUMER_WQ_NOT_UNIQUE.err_code
_DIFFERS: Final = Errors.CONSUMER_ALREADY_EXISTS.err_code
_NOT_MADE: Final = Errors.CONSUMER_CREATE.err_code  # its files went with one that is being deleted
_NOT_FOUND: Final = 404


class MemberConsumer:
    """A member's place at one consumer, whose pin it wants.

    Args:
        name: the consumer's.
        read_plan: reads the record anew; returns what the consumer is to read, or None.
        read_names: reads the record anew; returns the names of all consumers it has.
    """

    def __init__(
        self,
        shared: Shared,
        name: str,
        read_plan: Callable[[], Awaitable[Plan | None]],
        read_names: Callable[[], Awaitable[frozenset[str]]],
    ) -> None:
        self._shared = shared
        self._name = name
        self._read_plan = read_plan
        self._read_names = read_names
        self._state = State()
        self._changed = asyncio.Event()
        self._consumer: Consumer | None = None
        self._created = ""  # when the consumer was, as the server says
        self._consuming: Consuming | None = None
        self._deletion: asyncio.Task[None] | None = None
        self._creations: Asking[Consumer] | None = None
        self._resume_at = 0.0
        time, settings = asyncio.get_running_loop().time, shared.settings
        self._patience = WaitForPinned(time, lease_s=settings.lease_s, pin_s=settings.pin_s)
        self._task = asyncio.get_running_loop().create_task(
            self._run(), name=f"{shared.label} at {name}"
        )

    @property
    def consuming(self) -> Consuming | None:
        """What it does at the consumer, if it is there."""
        return self._consuming

    @property
    def state(self) -> State:
        """Where it is in its life."""
        return self._state

    def is_run_by(self, caller: object) -> bool:
        """Whether a handler of this one asks, in the task ``caller``."""
        return self._consuming is not None and self._consuming.is_run_by(caller)

    def works_with(self, observer: object) -> bool:
        """Whether ``observer`` of the connection belongs to it."""
        return self._consuming is not None and self._consuming.works_with(observer)

    def tell(self, event: Event) -> None:
        """Something has happened."""
        before = self._state
        self._state = state = after(before, event)
        if state is not before:
            if state.phase is Phase.PAUSED and before.phase is not Phase.PAUSED:
                self._resume_at = asyncio.get_running_loop().time() + self._pause_s()
            if state.phase is Phase.RELEASING and self._consuming is not None:
                self._consuming.begin_no_more()
            self._changed.set()

    async def wait(self) -> None:
        """Until its life is over."""
        await asyncio.wait([self._task])

    async def kill(self) -> None:
        """End at once: what runs is cancelled."""
        self._task.cancel()
        await asyncio.wait([self._task])

    def _pause_s(self) -> float:
        pause = self._state.pause
        if pause in (Pause.STANDBY, Pause.STEPPED_DOWN):
            return self._shared.random.randint(*STANDBY_MS) / 1000
        return (
            self._shared.settings.tick_s if pause is Pause.TICK else retry_s(self._state.failures)
        )

    # Life

    async def _run(self) -> None:
        try:
            while self._state.phase is not Phase.OVER:
                self._changed.clear()
                event = await self._do(self._state)
                if event is not None:
                    self.tell(event)
        except ConnectionClosedError as error:
            self._shared.failed(error)
            self.tell(End())
            self._state = State(Phase.OVER)
        except Exception as error:
            self._shared.failed(error)
            self._state = State(Phase.OVER)
        finally:
            if self._consuming is not None:
                await self._consuming.kill()
            if self._creations is not None:
                await self._creations.end()
            if self._deletion is not None:
                self._deletion.cancel()
                await asyncio.wait([self._deletion])

    async def _do(self, state: State) -> Event | None:
        """What the phase asks for. None: something was told meanwhile."""
        match state.phase:
            case Phase.CREATING:
                return await self._create(state)
            case Phase.CONSUMING:
                return await self._consume(state)
            case Phase.RELEASING:
                return await self._release(state)
            case Phase.PAUSED:
                return await self._pause()
            case Phase.READING:
                return await self._read()
            case Phase.DELETING:
                return await self._delete()
        await self._changed.wait()
        return None

    async def _pause(self) -> Event | None:
        left = self._resume_at - asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(max(left, 0.0)):
                await self._changed.wait()
        except TimeoutError:
            return Elapsed()
        return None

    async def _create(self, state: State) -> Event:
        await self._leave_old()
        shared, plan = self._shared, state.made
        assert plan is not None
        config = shared.settings.consumer(plan.consumer, plan.filters)
        if not self._is_in_turn():
            await self._until_deleted()
        try:
            try:
                consumer = await self._made(config)
            except JetStreamApiError as error:
                may_be_made = await self._until_deleted() or error.err_code == _NOT_MADE
                if not may_be_made and not await self._make_way(config, error):
                    return await self._refused(config, error)
                consumer = await shared.js.create_consumer(shared.stream, config)
            self._consumer = await self._at_the_beginning(consumer, config)
        except JetStreamApiError as error:
            return await self._refused(config, error)
        except ConnectionClosedError:
            raise
        except HeadraceError as error:
            shared.report(error)
            return Failed()
        self._patience.end()
        await self._until_deleted()
        info = self._consumer.cached_info
        self._created = "" if info is None else info.created
        return Created()

    async def _made(self, config: ConsumerConfig) -> Consumer:
        """The consumer, which a server that works in turn is asked for at once: behind our word that the
        former one is to be deleted. Where it is far it is asked again before it refuses."""
        shared = self._shared
        if shared.settings.is_static:
            return await shared.js.create_consumer(shared.stream, config)
        create = partial(shared.js.create_consumer, shared.stream, config)
        self._creations = creations = Asking(create, CREATED_AGAIN_S)
        while True:
            try:
                return await creations.next()
            except JetStreamApiError as error:
                is_in_way = error.err_code in (_OVERLAPS, _DIFFERS, _NOT_MADE)
                if not is_in_way or not creations.is_under_way or self._is_other_wanted():
                    await creations.settle()
                    raise

    def _is_in_turn(self) -> bool:
        """Whether the server does what it is asked in the order in which it is asked. nats-server does not: a
        consumer that is made before a deletion is answered may stand where the deleted one stood."""
        return bool(self._shared.js.connection.server_info.headrace)

    async def _at_the_beginning(self, consumer: Consumer, config: ConsumerConfig) -> Consumer:
        """The consumer, made anew for as long as it stands where another one stood: an instance beside us may
        have deleted that one just now. Raises GroupError: it does so again and again."""
        shared = self._shared
        if shared.settings.is_static or self._is_in_turn():
            return consumer
        for _ in range(MADE_ANEW):
            info = consumer.cached_info
            if info is None or not is_of_another(info):
                return consumer
            if self._creations is not None:
                await self._creations.settle()
            # All instances see it at once. Whoever comes later finds the new one, instead of deleting it.
            await asyncio.sleep(shared.random.random() * SPREAD_S)
            try:
                there = await consumer.info()
                if there.created == info.created and is_of_another(there):
                    await consumer.delete()
            except JetStreamApiError as error:
                if error.code != _NOT_FOUND:
                    raise
            consumer = await shared.js.create_consumer(shared.stream, config)
        raise GroupError(
            f"consumer {self._name!r} of stream {shared.stream!r} was made {MADE_ANEW} times, and goes on "
            "each time where a deleted one of its name stood"
        )

    def _is_other_wanted(self) -> bool:
        return self._state.ending or self._state.wanted != self._state.made

    async def _until_deleted(self) -> bool:
        """Until the deletion of our former consumer is answered. Whether it was under way, and is done."""
        deletion, self._deletion = self._deletion, None
        if deletion is None:
            return False
        try:
            await deletion
        except ConnectionClosedError:
            raise
        except HeadraceError as error:
            self._shared.report(error)
            return False
        return True

    async def _make_way(self, config: ConsumerConfig, error: JetStreamApiError) -> bool:
        """Do what can be done about what is in the way; whether to try again at once."""
        shared = self._shared
        if error.err_code == _DIFFERS and shared.settings.is_static:
            there = await self._there()
            return there is None or await change_times(shared.js, shared.stream, there, config)
        # Whoever is there learns of a change, and lets go, as fast as we do; its last words take two round
        # trips, and so do two of our attempts.
        is_late = self._state.failures >= LEFT_AFTER
        if error.err_code == _OVERLAPS and not shared.settings.is_static and is_late:
            names = await self._read_names()
            return bool(names) and await remove_orphans(
                shared.js, shared.stream, names, shared.settings.redelivery_s
            )
        return False

    def _say_it_waits(self, why: str) -> None:
        if self._patience.is_to_be_told():
            shared = self._shared
            shared.report(
                GroupError(f"{shared.label} waits for its consumer {self._name!r}: {why}")
            )

    async def _there(self) -> ConsumerInfo | None:
        """The consumer that exists; None if it is gone."""
        try:
            return (await self._shared.js.consumer(self._shared.stream, self._name)).cached_info
        except JetStreamApiError as error:
            if error.code != _NOT_FOUND:
                raise
            return None

    async def _refused(self, config: ConsumerConfig, error: JetStreamApiError) -> Event:
        shared = self._shared
        if error.err_code == _OVERLAPS:
            self._say_it_waits("another consumer of the group has some of its partitions still")
            return Overlaps()
        if error.err_code == _DIFFERS:
            if not shared.settings.is_static:
                return Differs()
            there = await self._there()
            how = "" if there is None else advice(shared.stream, self._name, there.config, config)
            problem: Exception = GroupConfigurationError(
                f"the existing static consumer group config doesn't match ours: consumer {self._name!r} "
                f"exists with another configuration: {how}"
            )
        else:
            problem = GroupError(f"error creating our member's consumer: {error}")
        problem.__cause__ = error
        if shared.settings.is_static:
            shared.failed(problem)
        else:
            shared.report(problem)
        return Failed(refused=True)

    async def _consume(self, state: State) -> Event | None:
        if self._consuming is None:
            assert self._consumer is not None
            assert state.made is not None
            self._consuming = Consuming(self._shared, self._consumer, state.made)
            self._consuming.outcome.add_done_callback(lambda _: self._changed.set())
            self._shared.attached()
        await self._changed.wait()
        if self._state.phase is not Phase.CONSUMING or not self._consuming.outcome.done():
            return None
        return self._consuming.outcome.result()

    async def _leave_old(self) -> None:
        """The handlers of the former generation end first, before anything new comes."""
        if self._consuming is not None:
            await self._consuming.settled()
            self._consuming = None

    async def _release(self, state: State) -> Event:
        consuming, how = self._consuming, state.release
        deleted = False
        if self._creations is not None:
            await self._creations.settle()  # or one would make it again
        if how is Release.DELETE and consuming is not None and consuming.generation is None:
            # Not pinned, and still able to be. nats-server pins who is gone, too, and keeps that pin.
            deleted = await self._try_to_remove(state)
        if consuming is not None:
            deleted = await consuming.release(Release.ABANDON if deleted else how) or deleted
            self._deletion = consuming.deletion
        self._consuming = None
        if self._deletion is not None and (self._state.ending or self._state.wanted is None):
            deleted = await self._until_deleted()
        if not deleted and how in (Release.DELETE, Release.REMOVE):
            deleted = await self._try_to_remove(state)
        return Released(deleted)

    async def _try_to_remove(self, state: State) -> bool:
        try:
            return await self._remove(state)
        except ConnectionClosedError:
            raise
        except HeadraceError as error:
            self._shared.report(error)
            return False

    async def _remove(self, state: State) -> bool:
        """Delete the consumer though we are not pinned: if the group is over, or nobody else is either."""
        shared = self._shared
        if state.release is Release.DELETE:
            if self._consumer is None or state.made is None:
                return False
            # All that stand by learn of a change at once. Whoever comes later finds the new consumer, instead
            # of deleting it.
            await asyncio.sleep(shared.random.random() * SPREAD_S)
            try:
                info = await self._consumer.info()
            except JetStreamApiError as error:
                if error.code != _NOT_FOUND:
                    raise
                return False  # whoever is pinned has deleted it, and makes the next one
            is_new = info.created != self._created
            if is_in_use(info) or is_new or info.config.filter_subjects != state.made.filters:
                return False
        try:
            await shared.js.delete_consumer(shared.stream, self._name)
        except JetStreamApiError as error:
            if error.code != _NOT_FOUND:
                raise
        return True

    async def _read(self) -> Event:
        await self._leave_old()
        try:
            return Read(await self._read_plan())
        except ConnectionClosedError:
            raise
        except HeadraceError as error:
            self._shared.report(error)
            return Failed()

    async def _delete(self) -> Event:
        """Delete the consumer that differs, unless its pinned client may still be draining it."""
        shared = self._shared
        try:
            other = await shared.js.consumer(shared.stream, self._name)
            info = other.cached_info
            if info is not None and info.config.metadata.get(ROLE) == QUERY_ROLE:
                return InUse()  # however long: it is not there for its pin
            if info is not None and is_in_use(info):
                is_pinned = is_pulled_from(info)
                if not self._patience.is_over(is_pinned=is_pinned):
                    self._say_it_waits(
                        "the consumer has other settings, and a former owner may be handling "
                        f"{info.num_ack_pending} messages of it"
                    )
                    return InUse()
            self._patience.end()
            await other.delete()
        except JetStreamApiError as error:
            if error.code != _NOT_FOUND:
                shared.report(error)
                return Failed(refused=True)
        except ConnectionClosedError:
            raise
        except HeadraceError as error:
            shared.report(error)
            return Failed()
        return Deleted()
