"""A member at work in a group, as users hold it."""

from __future__ import annotations

import asyncio
import random as random_module
import threading
from collections.abc import AsyncIterator, Callable, Hashable
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from ...api.errors import Errors
from ...client.seam import Residence
from ...errors import JetStreamApiError
from ...handling.callbacks import check_callback, check_plain
from ...handling.failure_policy import OnFailure, Stop
from ...handling.threads import Threads
from ..errors import GroupConfigurationError, GroupError, GroupNotFoundError, NotAMemberError
from ..record.names import check_member_name, elastic_stream
from ..record.records import ElasticGroup, StaticGroup, first_of
from ..server.bucket import Records
from ..server.presence import Present, announce, instance_name
from .config import Settings, check_concurrency, key_function, plans
from .consumer.machine import End, Release, Wanted
from .consumer.member_consumer import MemberConsumer
from .following import Following
from .handlers.iteration import Iteration
from .intake import Copied
from .lease import Generation
from .loop_watch import LoopWatch, MembershipStats, name_of
from .reachability import Reachability
from .shared import Handler, HandlerLimit, Shared, Silence

if TYPE_CHECKING:
    from ...api.consumers import ConsumerConfig
    from ...client import JetStream, Subscription
    from ..message import GroupMessage

G = TypeVar("G", StaticGroup, ElasticGroup)


class Membership(Generic[G]):
    """One instance of a group's member. Made by ``static.join`` and ``elastic.join``.

    ::

        async with elastic.join(js, "ORDERS", "billing", "a", handle) as membership:
            await membership.wait()

    Entered, it waits until the record lists the member, takes part, and follows the record's changes. Of
    several instances of one member the first that gets work is active; the others stand by. Without a
    handler iterate it: ``async for message in membership``; a message counts as handled when the next one is
    asked for.

    Args:
        kind: ``StaticGroup`` or ``ElasticGroup``.
        stream, group, member: the stream of the group, the group, and which of its members this is.
        handler: called for each message; it acknowledges the message. A coroutine function runs on the
            event loop. A plain function runs on one of ``concurrency`` threads of the membership's own, and
            may block; each call has a copy of the context (``contextvars``) of ``start``. What it returns is
            awaited on the loop if it can be.
        config: how the member's consumers deliver; all instances of a group give the same. Names, filters
            and priority group are set by the group. ``ack_wait`` is 5 seconds where none is given.
        concurrency: how many handlers run at once, never two for one key.
        key: what a message's key is, instead of what the group partitions by.
        on_failure: what follows when the handler raises: ``Stop()``, ``Retry(…)``, ``DeadLetter(…)``.
        on_active, on_standby: plain functions, called when this instance becomes the owner of partitions,
            with the generation, and when it is the owner of none any more.
        on_error: called with errors that do not end the membership; without it those are connection events.
        random: for pauses.
        threads: where a plain handler runs, instead of threads of its own.

    Attributes:
        stream, group, member: as given.
    """

    def __init__(
        self,
        js: JetStream,
        kind: type[G],
        stream: str,
        group: str,
        member: str,
        handler: Handler | None = None,
        config: ConsumerConfig | None = None,
        *,
        concurrency: int = 1,
        key: Callable[[GroupMessage], Hashable] | None = None,
        on_failure: OnFailure | None = None,
        on_active: Callable[[int], object] | None = None,
        on_standby: Callable[[], object] | None = None,
        on_error: Callable[[Exception], object] | None = None,
        random: random_module.Random | None = None,
        threads: Threads | None = None,
    ) -> None:
        check_callback("handler", handler)
        check_plain("key", key)
        self._on_active = check_plain("on_active", on_active)
        self._on_standby = check_plain("on_standby", on_standby)
        self._on_error = check_plain("on_error", on_error)
        check_concurrency(concurrency, config, has_handler=handler is not None)
        self.stream = stream
        self.group = group
        self.member = check_member_name(member)
        self._js = js
        self._residence = Residence(js.connection, self)
        self._is_static = kind is StaticGroup
        self._records: Records[G] = Records(js, kind)
        self._config = config
        self._settings = self._check_config("interoperable", 0)
        self._iteration = Iteration() if handler is None else None
        self._handler: Handler = handler or self._iteration.hand_over  # type: ignore[union-attr]
        self._concurrency = concurrency
        self._key = key
        self._on_failure: OnFailure = Stop() if on_failure is None else on_failure
        self._random = random or random_module.Random()
        self._threads = threads or Threads(concurrency, f"member {member} of {group}")
        self._loop_watch: LoopWatch | None = None
        self._shared: Shared | None = None
        self._consumers: dict[str, MemberConsumer] = {}
        self._generations: dict[Generation, None] = {}
        self._ending = False
        self._is_cut_off = False  # it ended without a link
        self._error: Exception | None = None
        self._is_raised = False
        self._ended: asyncio.Future[None] | None = None
        self._attached = asyncio.Event()
        self._following: Following[G] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._presence: Subscription | None = None
        self._reachability: Reachability | None = None

    def __repr__(self) -> str:
        return f"<Membership {self.member!r} of {self.group!r} active={self.is_active}>"

    # What it is

    @property
    def is_active(self) -> bool:
        """Whether this instance surely owns partitions."""
        return bool(self._owned())

    @property
    def is_consuming(self) -> bool:
        """Whether it reads a consumer of its member, as the active instance or as one that stands by."""
        found = (each.consuming for each in tuple(self._consumers.values()))
        return any(each is not None and not each.outcome.done() for each in found)

    @property
    def partitions(self) -> tuple[int, ...]:
        """Those it owns now."""
        return tuple(sorted(number for each in self._owned() for number in each.partitions))

    @property
    def generation(self) -> int:
        """The newest generation of what it owns; 0 if that is nothing."""
        return max((each.number for each in self._owned()), default=0)

    @property
    def stats(self) -> MembershipStats:
        """What went wrong so far, as numbers."""
        watch = self._loop_watch
        return MembershipStats() if watch is None else watch.stats()

    def _owned(self) -> list[Generation]:
        # Asked from other threads, too, and copied at once: the loop's own changes it.
        return [each for each in tuple(self._generations) if each.is_owned]

    # Beginning

    async def start(self) -> Self:
        """Begin; ``async with`` does it.

        Raises:
            GroupConfigurationError: the group cannot work with the arguments.
            GroupNotFoundError: there is no such group, or its stream is gone.
            GroupRecordError: its record cannot be read.
            NotAMemberError: a static group does not list the member.
        """
        if self._ended is not None:
            raise GroupConfigurationError("a membership is begun once; join again for another one")
        word = self._records.word
        await self._check_stream(self.stream, f"the {word} consumer group's stream does not exist")
        record = await self._records.get(self.stream, self.group)
        self._settings = settings = self._check_config(record.layout, first_of(record))
        if self._is_static and self.member not in record.assignment():
            raise NotAMemberError(
                "the member name is not in the current static consumer group membership: "
                f"{self.member!r} is not one of {', '.join(sorted(record.assignment()))}"
            )
        where = self.stream if self._is_static else elastic_stream(self.stream, self.group)
        changes = await self._records.watch(self.stream, self.group, on_error=self._report)
        kind = StaticGroup if self._is_static else ElasticGroup
        copied: Copied | None = None
        try:
            if not self._is_static:
                copied = await Copied.of(self._js, self.stream, where, self._report)
            self._presence = await announce(self._js, kind, self.stream, self.group, self._present)
        except BaseException:
            await changes.stop()
            raise
        self._ended = asyncio.get_running_loop().create_future()
        self._following = Following(self._records, record, self.member, self._want, self._finish)
        label = f"member {self.member!r} of group {self.group!r} of stream {self.stream!r}"
        self._loop_watch = LoopWatch(
            label, name_of(self._handler), settings.lease_s, self._residence.emit, self._current
        )
        self._shared = Shared(
            js=self._js,
            stream=where,
            group=self.group,
            label=label,
            settings=settings,
            handler=self._traced(),
            on_failure=self._on_failure,
            concurrency=self._concurrency,
            key=self._key or key_function(record),
            limit=HandlerLimit(self._concurrency) if record.layout == "per_partition" else None,
            report=self._report,
            failed=self._fail,
            began=self._began,
            ended=self._lost,
            attached=self._attached.set,
            threads=self._threads,
            watch=self._loop_watch,
            silence=Silence(2 * settings.pull_s),
            emit=self._residence.emit,
            random=self._random,
            copied=copied,
        )
        self._residence.begin()
        self._want(record)
        following = self._following
        following.begin(changes, f"record of {label}")
        self._reachability = Reachability(
            self._js, lambda: following.record, label, self._residence.emit, self._random
        )
        return self

    def _traced(self) -> Handler:
        return self._handler if self._iteration else self._residence.traced(self._handler)

    def _present(self) -> Present:
        numbers = tuple(sorted(each.number for each in self._generations))
        return Present(member=self.member, instance=instance_name(self._js), generations=numbers)

    def _check_config(self, layout: str, first: int) -> Settings:
        return Settings(self._config, is_static=self._is_static, layout=layout, first=first)

    async def _check_stream(self, name: str, problem: str) -> None:
        try:
            await self._js.stream(name)
        except JetStreamApiError as error:
            if error.err_code != Errors.STREAM_NOT_FOUND.err_code:
                raise
            raise GroupNotFoundError(f"{problem}: {name!r}") from error

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, kind: object, error: object, traceback: object) -> None:
        await leave_from(self, asyncio.current_task(), ends_well=kind is None)

    # The record

    def _want(self, record: G) -> None:
        """Tell every consumer what it is to read now."""
        if self._ending:
            return  # nothing is begun any more
        assert self._shared is not None
        assert self._following is not None
        self._shared.key = self._key or key_function(record)
        wanted = plans(record, self.member)
        for name in wanted:
            if name not in self._consumers:
                read_plan = partial(self._following.read_plan, name)
                self._consumers[name] = MemberConsumer(
                    self._shared, name, read_plan, self._following.read_names
                )
        for name, each in self._consumers.items():
            each.tell(Wanted(wanted.get(name), record.max_members))

    # Ownership

    def _began(self, generation: Generation) -> None:
        self._generations[generation] = None
        assert self._loop_watch is not None
        self._loop_watch.begin()
        if self._on_active is not None:
            self._call(self._on_active, generation.number)

    def _lost(self, generation: Generation) -> None:
        if self._generations.pop(generation, self) is self or self._generations:
            return
        assert self._loop_watch is not None
        self._loop_watch.end()
        if self._on_standby is not None:
            self._call(self._on_standby)

    def _current(self) -> GroupMessage | None:
        """A message that is being handled on the loop."""
        for each in self._consumers.values():
            if each.consuming is not None and (message := each.consuming.current()) is not None:
                return message
        return None

    def _call(self, callback: Callable[..., object], *arguments: object) -> None:
        try:
            callback(*arguments)
        except Exception as error:
            self._report(error)

    def _report(self, error: Exception, about: str = "") -> None:
        if self._on_error is None:
            self._residence.report(error, about)
            return
        try:
            self._on_error(error)
        except Exception as second:
            self._residence.report(second)

    # Taking messages without a handler

    def __aiter__(self) -> AsyncIterator[GroupMessage]:
        return self

    async def __anext__(self) -> GroupMessage:
        if self._iteration is None:
            raise GroupConfigurationError(
                "there is a handler: what it gets cannot be iterated, too"
            )
        if self._ended is None:
            raise GroupConfigurationError(_NOT_BEGUN)
        message = await self._iteration.next()
        if message is None:
            await asyncio.shield(self._ended)
            self._raise_error_once()
            raise StopAsyncIteration
        return message

    async def wait_for_consuming(self) -> None:
        """Until it reads a consumer of its member: the record lists the member, and messages can come.

        Raises:
            GroupError: the membership ends before. What ``wait`` raises is raised, if it has a reason.
        """
        if self._ended is None:
            raise GroupConfigurationError(_NOT_BEGUN)
        while not self.is_consuming:
            self._attached.clear()
            attached = asyncio.ensure_future(self._attached.wait())
            try:
                await asyncio.wait((attached, self._ended), return_when=asyncio.FIRST_COMPLETED)
            finally:
                attached.cancel()
            if self._ended.done() and not self.is_consuming:
                self._raise_error_once()
                raise GroupError(f"member {self.member!r} of {self.group!r} left before it read")

    # Ending

    async def wait(self) -> None:
        """Until the membership has ended: by ``leave``, or because the group was deleted.

        Raises:
            GroupChangedError: what is fixed at the group's creation was changed, or the record is bad.
            HandlerFailedError: the handler failed, and the policy is to stop.
            ConnectionClosedError: the connection is closed.
            GroupError: the member's consumer cannot be had.
        """
        if self._ended is None:
            raise GroupConfigurationError(_NOT_BEGUN)
        if self._iteration is not None and not self._iteration.is_used and not self._ending:
            raise GroupConfigurationError(
                "a message handler must be provided; or iterate the membership: "
                "async for message in membership, in headrace.sync: for message in membership"
            )
        await asyncio.shield(self._ended)
        if self._error is not None:
            self._is_raised = True
            raise self._error

    async def leave(self) -> None:
        """End: begin no more handlers, wait for those that run, and let a standby begin at once.

        A message that was handed out to who iterates is waited for, too, for ``ack_wait``; not if who
        iterates leaves: then it goes back, unless it was answered.

        Called by a handler it does not wait. Cancelled, it cancels the handlers that run.
        """
        await self._leave(asyncio.current_task())

    async def _leave(self, caller: object) -> None:
        """``leave``, without waiting for what ``caller`` has in hand."""
        if self._ended is None:
            return
        self._begin_to_leave(caller, None, is_cut_off=False)
        await self._until_left(caller)

    def _begin_to_leave(
        self, caller: object, reason: Exception | None, *, is_cut_off: bool
    ) -> None:
        """See ``Resident``."""
        self._is_cut_off = is_cut_off
        self._finish(reason, Release.ABANDON if is_cut_off else Release.HAND_OVER, caller)

    async def _until_left(self, caller: object) -> None:
        """See ``Resident``."""
        assert self._closing is not None
        is_handler = any(each.is_run_by(caller) for each in self._consumers.values())
        if is_handler or self._threads.has(caller):
            return
        try:
            await asyncio.shield(self._closing)
        except asyncio.CancelledError:
            await asyncio.gather(*(each.kill() for each in self._consumers.values()))
            await asyncio.wait([self._closing])
            raise

    def _works_with(self, observer: object) -> bool:
        """See ``Resident``."""
        return any(each.works_with(observer) for each in self._consumers.values())

    def _fail(self, error: Exception) -> None:
        self._finish(error, Release.HAND_OVER)

    def _finish(self, error: Exception | None, release: Release, caller: object = None) -> None:
        """Begin to end. What ``caller`` has taken by iterating is not waited for."""
        for each in list(self._consumers.values()):
            each.tell(End(release))
        if self._ending:
            return
        self._ending = True
        self._error = error
        if self._following is not None:
            self._following.is_over = True
        if self._iteration is not None:
            self._iteration.end(caller, self._settings.ack_wait)
        self._closing = asyncio.get_running_loop().create_task(
            self._close(), name=f"end of {self.member} of {self.group}"
        )

    async def _close(self) -> None:
        for each in list(self._consumers.values()):
            await each.wait()
        if self._following is not None:
            await self._following.end(is_cut_off=self._is_cut_off)
        if self._reachability is not None:
            await self._reachability.end()
        self._threads.close()
        if self._presence is not None:
            await self._presence.unsubscribe()
        self._residence.end()
        assert self._ended is not None
        self._ended.set_result(None)

    def _raise_error_once(self) -> None:
        if self._error is not None and not self._is_raised:
            self._is_raised = True
            raise self._error


_NOT_BEGUN = (
    "the membership has not begun; enter it: async with … as membership, "
    "in headrace.sync: with … as membership"
)


# For its twin on threads


def is_handler_here(membership: Membership[Any]) -> bool:
    """Whether a handler of it runs on the calling thread."""
    return membership._threads.is_here


def read_from_here(membership: Membership[Any]) -> None:
    """Who iterates it is the calling thread."""
    if membership._iteration is not None:
        membership._iteration.reader = threading.get_ident()


def leave_soon(membership: Membership[Any]) -> None:
    """Begin to leave, and wait for nothing."""
    membership._finish(None, Release.HAND_OVER)


async def leave_from(membership: Membership[Any], caller: object, *, ends_well: bool) -> None:
    """Leave for ``caller``. ``ends_well``: raise what the membership ended with, if that was not told."""
    await membership._leave(caller)
    if ends_well:
        membership._raise_error_once()


def close_threads(membership: Membership[Any]) -> None:
    """End its threads, on which no more is called."""
    membership._threads.close()
