"""Serve the numbers of a stream's groups to Prometheus."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final
from urllib.parse import SplitResult

import click

from ...errors import ConfigurationError
from ...groups import ElasticGroup, GroupError, GroupNotFoundError, StaticGroup
from ...groups.autoscale import UNANSWERED
from ...groups.lag import GroupLag, measure
from ...groups.metrics import prometheus
from ...groups.server.bucket import Records
from ...web.pages import NUMBERS, Page, PageServer, plain
from ..shared.output import Output
from ..shared.verbs import Declare
from .text import table_document as document

if TYPE_CHECKING:
    from ...client import JetStream

LISTEN: Final = "127.0.0.1:9464"
FRESH_S: Final = 1.0  # several scrapers within it share one look


METRICS_OPTIONS: Final[tuple[Declare, ...]] = (
    click.argument("groups", nargs=-1, metavar="[GROUP]…"),
    click.option(
        "--listen",
        default=LISTEN,
        metavar="HOST:PORT",
        help=f"serve them on http://HOST:PORT/metrics; port 0 is any free one ({LISTEN})",
    ),
    click.option("--once", is_flag=True, help="print them once and end"),
)


async def metrics_command(js: JetStream, args: SimpleNamespace) -> int:
    """``headrace group metrics``: until Ctrl-C, unless ``--once``."""
    if args.form != "text" and not args.once:
        raise ConfigurationError(
            f"--{args.form} goes with --once; what is served is Prometheus' format"
        )
    try:
        looks, problems = await measured(js, args.stream, args.groups)
    except GroupNotFoundError as error:
        raise GroupError(str(error)) from error
    if args.form != "text":
        found = {"groups": [document(each) for each in looks], "problems": problems}
        Output(args.form).show(found)
    elif args.once:
        print(text_of(looks, problems), end="")
    if args.once:
        return 0
    async with Exporter(js, args.stream, args.groups, listen=args.listen) as exporter:
        print(f"metrics at {exporter.url}", file=sys.stderr, flush=True)
        await asyncio.Event().wait()
    return 0


async def measured(
    js: JetStream, stream: str, groups: Sequence[str] = ()
) -> tuple[list[GroupLag], dict[str, str]]:
    """A look at each of a stream's groups, or of those named; and by name why some cannot be read.

    Raises GroupNotFoundError: one that was named is not there.
    """
    static = await Records(js, StaticGroup).list(stream)
    elastic = await Records(js, ElasticGroup).list(stream)
    found: list[StaticGroup | ElasticGroup] = [*static.groups, *elastic.groups]
    damaged = {**static.damaged, **elastic.damaged}
    problems = {name: str(error) for name, error in damaged.items()}
    for name in groups:
        if name not in problems and all(each.name != name for each in found):
            raise GroupNotFoundError(f"stream {stream!r} has no group {name!r}, static or elastic")
    looks: list[GroupLag] = []
    for each in found:
        if groups and each.name not in groups:
            continue
        try:
            looks.append(await measure(js, each))
        except GroupError as error:
            problems[each.name] = str(error)
    return looks, problems


def text_of(looks: Sequence[GroupLag], problems: Mapping[str, str]) -> str:
    """The metrics. A group that cannot be read is a comment that says why: it does not hide the others."""
    return prometheus(looks) + "".join(f"# group {n}: {why}\n" for n, why in problems.items())


class Exporter:
    """An HTTP server that answers GET /metrics: ``async with Exporter(js, "ORDERS", host, port)``.

    Attributes:
        url: where the metrics are.
    """

    def __init__(
        self, js: JetStream, stream: str, groups: Sequence[str] = (), *, listen: str = LISTEN
    ) -> None:
        self._js = js
        self._stream = stream
        self._groups = tuple(groups)
        self._host, self._port = _address(listen)
        self._server = PageServer(self._page)
        self._one = asyncio.Lock()
        self._taken: tuple[float, str] | None = None
        self.url = ""

    async def __aenter__(self) -> Exporter:
        try:
            await self._server.listen(self._host, self._port)
        except OSError as error:
            where = f"{self._host}:{self._port}"
            raise ConfigurationError(f"--listen {where}: {error.strerror or error}") from error
        self.url = f"http://{self._server.address}/metrics"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.close()

    async def _page(self, url: SplitResult) -> Page:
        if url.path != "/metrics":
            return plain(404, "the metrics are at /metrics\n")
        try:
            return Page(200, NUMBERS, (await self._text()).encode())
        except (*UNANSWERED, GroupError) as error:
            return plain(503, f"{error}\n")

    async def _text(self) -> str:
        """The metrics; whoever asks while others do, or shortly after, shares one look."""
        clock = asyncio.get_running_loop().time
        async with self._one:
            if self._taken is None or clock() - self._taken[0] > FRESH_S:
                found = await measured(self._js, self._stream, self._groups)
                self._taken = (clock(), text_of(*found))
            return self._taken[1]


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65_535:
        raise ConfigurationError(f"--listen {text!r}; accepted is HOST:PORT, such as {LISTEN}")
    return host.removeprefix("[").removesuffix("]"), int(port)
