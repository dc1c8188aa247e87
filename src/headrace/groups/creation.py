"""Creating an elastic group: what is checked, what is made, and in which order.

What can be refused is asked first. The record comes before the work queue, so of several callers one decides.
Whatever fails in between, a second call takes what is there already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .errors import GroupError
from .record.records import ElasticGroup
from .server import consumers, work_queue
from .server.bucket import Records
from .server.work_queue import Beginning
from .start import Start, beginning, check_start
from .watching import trouble

if TYPE_CHECKING:
    from ..api.streams import StreamInfo
    from ..client import JetStream

__all__ = ["Creation", "remove"]


class Creation:
    """One call of ``elastic.create``: ``check``, then ``write``.

    Args:
        wanted: the group as it is to be.
        start: with which message it begins, if it is new.
    """

    def __init__(self, js: JetStream, wanted: ElasticGroup, start: Start) -> None:
        self._js = js
        self._wanted = wanted
        self._start = start
        self._records = Records(js, ElasticGroup)
        self._beginning: Beginning | None = None

    async def check(self) -> StreamInfo:
        """The group's stream, as it is now. Nothing is made yet.

        Raises GroupConfigurationError: a setting is wrong, or the stream does not exist or does not fit.
        """
        self._wanted.validate()
        check_start(self._start)
        origin = await consumers.origin_of(self._js, self._wanted.stream, "elastic")
        work_queue.config_of(self._wanted, origin)
        return origin

    async def write(self, origin: StreamInfo) -> ElasticGroup:
        """The work queue and the record, or those there are; raises as ``elastic.create``."""

        async def prepare() -> ElasticGroup:
            return await self._prepare(origin)

        async def first() -> Beginning:
            return await self._first(origin)

        wanted, records = self._wanted, self._records
        await records.make(origin.config.num_replicas)
        stored, created = await records.create_or_get(wanted, prepare)
        try:
            await work_queue.ensure(self._js, stored, origin, first)
        except GroupError:
            if created:
                await records.delete(wanted.stream, wanted.name, revision=stored.revision)
            raise
        return stored

    async def _prepare(self, origin: StreamInfo) -> ElasticGroup:
        """What has to be there before the record: there is no group of that name."""
        js, wanted = self._js, self._wanted
        if (buried := await self._records.buried(wanted.stream, wanted.name)) is not None:
            await remove(js, self._records, buried)
        await trouble.check_new(js, wanted, origin)
        await self._first(origin)
        await work_queue.prepare(js, wanted, origin)
        return wanted

    async def _first(self, origin: StreamInfo) -> Beginning:
        """Where it begins; asked once, as what comes meanwhile must not move it."""
        if self._beginning is None:
            self._beginning = await beginning(self._js, origin, self._start)
        return self._beginning


async def remove(js: JetStream, records: Records[ElasticGroup], record: ElasticGroup) -> None:
    """Delete what belongs to a group whose record is buried."""
    await work_queue.remove(js, record)
    await records.forget(record)
