"""The group's record as it changes, and what a change means to one of its members."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from ...errors import ConnectionClosedError, JetStreamApiError
from ..errors import GroupChangedError, GroupError, GroupNotFoundError, GroupRecordError
from ..record.records import ElasticGroup, StaticGroup
from ..server.bucket import Records
from ..server.consumers import consumers_of
from .config import Plan, plans
from .consumer.machine import Release

G = TypeVar("G", StaticGroup, ElasticGroup)


class Following(Generic[G]):
    """What is known of the record, and the watch that keeps it new.

    Args:
        record: as it is now.
        member: whose consumers it is about.
        changed: told of another record that the member can follow.
        over: told that the membership is over: with the error, or None, and how to let go.

    Attributes:
        record: the newest one that the member follows.
        is_over: whether the membership is over, so that changes mean nothing any more.
    """

    def __init__(
        self,
        records: Records[G],
        record: G,
        member: str,
        changed: Callable[[G], None],
        over: Callable[[Exception | None, Release], None],
    ) -> None:
        self._records: Records[G] = records
        self._member = member
        self._changed: Callable[[G], None] = changed
        self._over = over
        self._task: asyncio.Task[None] | None = None
        self.record: G = record
        self.is_over = False

    def begin(self, changes: Any, name: str) -> None:
        """Follow ``changes``, a watch of the record, in a task of this name."""
        self._task = asyncio.get_running_loop().create_task(self._watch(changes), name=name)

    async def end(self, *, is_cut_off: bool) -> None:
        """Stop following. Without a link, the watch ends with the connection."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            if not is_cut_off:
                await asyncio.wait([self._task])

    # The record anew, beside the watch

    async def read_names(self) -> frozenset[str]:
        """The record anew: whose consumers there are to be. Empty if it cannot be read."""
        try:
            record = await self._get()
        except GroupError:
            return frozenset()  # the watch ends the membership
        return frozenset(name for names in consumers_of(record).values() for name in names)

    async def read_plan(self, name: str) -> Plan | None:
        """The record anew: a consumer is gone, or not what it should be."""
        try:
            record = await self._get()
        except GroupNotFoundError:
            return None  # the watch ends the membership
        except GroupRecordError as error:
            self._changed_badly(f"received a bad change: {error}", error)
            return None
        self._take(record)
        return plans(self.record, self._member).get(name)

    async def _get(self) -> G:
        return await self._records.get(self.record.stream, self.record.name)

    # The watch

    async def _watch(self, changes: Any) -> None:
        try:
            async with changes:
                while True:
                    try:
                        record = await anext(changes)
                    except StopAsyncIteration:
                        break
                    if record is None:
                        release = Release.REMOVE if self._is_static else Release.ABANDON
                        return self._over(None, release)
                    if not self._take(record):
                        return None
        except GroupRecordError as error:
            return self._changed_badly(f"received a bad change: {error}", error)
        except ConnectionClosedError as error:
            return self._fail(error)
        except JetStreamApiError as error:
            self._fail(GroupError(f"{self._watcher} ended: {error}"))
        except Exception as error:
            self._fail(error)
        else:
            self._fail(GroupError(f"{self._watcher} has been closed, stopping"))

    def _take(self, record: G) -> bool:
        """Act on what the record says now. False: the membership is over."""
        if self.is_over:
            return False
        if isinstance(record, StaticGroup):
            if record != self.record:
                self._changed_badly("received a change in the configuration, terminating", None)
                return False
            return True
        if not record.can_follow(self.record):
            self._changed_badly(
                "received a bad change in the configuration: max number of members, buffered messages, "
                "filter or partitioning wildcards changed",
                None,
            )
            return False
        if record.revision > self.record.revision:
            self.record = record
            self._changed(record)
        return True

    @property
    def _is_static(self) -> bool:
        return isinstance(self.record, StaticGroup)

    @property
    def _watcher(self) -> str:
        where = f"{self.record.stream}-{self.record.name}"
        return f"{self._records.word} consumer group config {where} watcher"

    def _changed_badly(self, what: str, cause: Exception | None) -> None:
        error = GroupChangedError(f"{self._watcher} {what}")
        error.__cause__ = cause
        self._over(error, Release.REMOVE if self._is_static else Release.HAND_OVER)

    def _fail(self, error: Exception) -> None:
        self._over(error, Release.HAND_OVER)
