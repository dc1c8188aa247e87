"""The first half: publish the flights to a stream, in schedule order, each exactly once.

Flight ``n`` of the schedule has sequence ``n`` of the stream, so the stream shows where to continue. Each
message names the sequence it expects before it. So if one is rejected (a full disk, a second publisher),
all messages sent after it are rejected too, and the stream never has a gap.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final, Self

from ..api import names
from ..client import Connection, JetStream, Publisher, PublishError, Stream, connect
from ..errors import (
    HeadraceError,
    JetStreamApiError,
    NoRespondersError,
    StoreFullError,
    StreamNotFoundError,
)
from ..groups import PartitioningFilter, elastic
from .errors import DemoError
from .flights import messages

if TYPE_CHECKING:
    import pyarrow as pa

    from ..embedded import Broker

STREAM: Final = "FLIGHTS"
GROUP: Final = "delays"
LEGS: Final = "LEGS"
"""The stream of results; Spark keeps its markers there, too."""
PARTITIONS: Final = 8
REPORT_S: Final = 0.1

SUBJECTS: Final = "flights.*.*"
_METADATA: Final = {"dataset": "nycflights13", "order": "year, month, day, sched_dep_time"}
_CONFLICT: Final = 10071  # wrong last sequence
_NO_ROOM: Final = 10023  # insufficient resources
_EXISTS: Final = 10058  # with another configuration


class FlightStream:
    """The stream of flights on one server; an async context manager.

    ``broker`` is the server if it is in this process: then no socket is needed.
    """

    def __init__(self, url: str, broker: Broker | None = None) -> None:
        self._url = url
        self._connect = partial(connect, url) if broker is None else broker.connect
        self._connection: Connection | None = None

    async def __aenter__(self) -> Self:
        # Reconnecting would hide that the server is gone; running the demo again continues anyway.
        self._connection = await self._connect(name="headrace demo", reconnect=False)
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._connection is not None:
            await self._connection.close()

    def _jetstream(self) -> JetStream:
        if self._connection is None:
            raise RuntimeError("not connected; use `async with`")
        return self._connection.jetstream()

    async def prepare(self, flights: pa.Table) -> int:
        """Create the stream or find it. Returns how many flights it holds.

        Raises:
            DemoError: a stream of this name has other content.
        """
        js = self._jetstream()
        try:
            stream = await js.create_stream(
                name=STREAM,
                subjects=(SUBJECTS,),
                metadata=_METADATA,
            )
            await elastic.create(
                js,
                STREAM,
                GROUP,
                PARTITIONS,
                partitioning_filters=[PartitioningFilter(SUBJECTS, (2,))],  # by aircraft
                members=["spark"],
            )
        except NoRespondersError as error:
            raise DemoError(
                f"The server at {self._url} has no JetStream; start it with it."
            ) from error
        except JetStreamApiError as error:
            if error.err_code != _EXISTS:
                raise
            raise _not_ours() from error
        state = (await stream.info()).state
        if state.last_seq:
            await _check_last(stream, flights, state.last_seq, state.messages)
        return state.last_seq

    async def prepare_results(self, *, anew: bool) -> None:
        """Create the stream for the legs, or find it; with ``anew`` what it has is removed.

        Raises:
            DemoError: the server cannot store batches of rows as one.
        """
        js = self._jetstream()
        if anew:
            with contextlib.suppress(StreamNotFoundError):
                await js.delete_stream(LEGS)
        stream = await js.create_or_update_stream(
            name=LEGS,
            subjects=("legs.*.*", f"_sink.{LEGS}.>"),
            allow_atomic=True,
            allow_rollup_hdrs=True,
        )
        info = await stream.info()
        if not info.config.allow_atomic:
            raise DemoError(
                f"The server at {self._url} cannot store several messages at once; it has to be Headrace, or "
                "nats-server 2.12 or newer."
            )

    async def publish(
        self, flights: pa.Table, start: int, stop: int, advance: Callable[[int], None]
    ) -> None:
        """Publish the flights ``[start, stop)``; all are acknowledged when this returns.

        ``advance`` is called from time to time with the number of newly acknowledged messages.

        Raises:
            DemoError: the server rejected a message or went away; stored messages stay.
            StoreFullError: the server's disk is full; stored messages stay.
        """
        if start >= stop:
            return
        js = self._jetstream()
        try:
            async with js.publisher(retries=0) as publisher:
                reporting = asyncio.ensure_future(_report(publisher, advance))
                try:
                    await publisher.send_many(_guarded(flights, start, stop, publisher))
                    await publisher.flush()
                finally:
                    reporting.cancel()
                    await asyncio.wait([reporting])
        except PublishError as error:
            raise _refused(error) from error


async def _check_last(stream: Stream, flights: pa.Table, last: int, held: int) -> None:
    """Check that the last message is the flight of that number; a gap before it would shift it."""
    if held != last or last > flights.num_rows:
        raise _not_ours()
    stored = await stream.get_message(last)
    ((_, payload),) = messages(flights, last - 1, last)
    if stored.payload != payload:
        raise _not_ours()


def _guarded(
    flights: pa.Table, start: int, stop: int, publisher: Publisher
) -> Iterator[tuple[str, bytes, dict[str, str]]]:
    """The messages, each with the sequence that must precede it, until one has failed."""
    for before, (subject, payload) in enumerate(messages(flights, start, stop), start):
        if publisher.failed:
            return
        yield subject, payload, {names.EXPECTED_LAST_SEQ: str(before)}


async def _report(publisher: Publisher, advance: Callable[[int], None]) -> None:
    """Report the number of new acknowledgements until cancelled; then once more."""
    told = 0
    try:
        while True:
            await asyncio.sleep(REPORT_S)  # how often the displayed number changes
            advance(publisher.acked - told)
            told = publisher.acked
    finally:
        advance(publisher.acked - told)


def _refused(error: PublishError) -> HeadraceError:
    cause = error.failures[0].error  # the others are only consequences
    if isinstance(cause, JetStreamApiError) and cause.err_code == _NO_ROOM:
        return StoreFullError(f"the broker refused flight {error.failures[0].index + 1}: {cause}")
    if isinstance(cause, JetStreamApiError) and cause.err_code == _CONFLICT:
        return DemoError(
            f"Something else publishes to the stream {STREAM} at the same time; stop it, and begin anew with "
            "--reset."
        )
    return DemoError(
        f"Publishing stopped: {error.count:,} flights were not acknowledged ({cause}); run the same command "
        "again, it goes on where it stopped."
    )


def _not_ours() -> DemoError:
    return DemoError(
        f"The stream {STREAM} holds something else than these flights in this order; begin anew with --reset."
    )
