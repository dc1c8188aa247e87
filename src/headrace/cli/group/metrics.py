"""Serve the numbers of a stream's groups to Prometheus."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final

import click

from ...errors import ConfigurationError
from ...groups import ElasticGroup, GroupError, GroupNotFoundError, StaticGroup
from ...groups.autoscale import UNANSWERED
from ...groups.lag import GroupLag, measure
from ...groups.metrics import prometheus
from ...groups.server.bucket import Records
from ..shared.output import Output
from ..shared.verbs import Declare
from .table import document

if TYPE_CHECKING:
    from ...client import JetStream

LISTEN: Final = "127.0.0.1:9464"
REQUEST_BYTES_MAX: Final = 8 * 1024
REQUEST_S_MAX: Final = 5.0
OPEN_MAX: Final = 64  # connections; one more is closed
FRESH_S: Final = 1.0  # several scrapers within it share one look
_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_PLAIN: Final = "text/plain; charset=utf-8"


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
        self._server: asyncio.Server | None = None
        self._one = asyncio.Lock()
        self._taken: tuple[float, str] | None = None
        self._open = 0
        self.url = ""

    async def __aenter__(self) -> Exporter:
        try:
            self._server = await asyncio.start_server(
                self._serve, self._host, self._port, limit=REQUEST_BYTES_MAX
            )
        except OSError as error:
            where = f"{self._host}:{self._port}"
            raise ConfigurationError(f"--listen {where}: {error.strerror or error}") from error
        host, port = self._server.sockets[0].getsockname()[:2]
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{port}/metrics"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request, and close."""
        self._open += 1
        try:
            if self._open > OPEN_MAX:
                return
            async with asyncio.timeout(REQUEST_S_MAX):
                head = await reader.readuntil(b"\r\n\r\n")
            status, kind, text = await self._answer(head)
            body = text.encode()
            front = (
                f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
                "Connection: close\r\n\r\n"
            )
            writer.write(front.encode() + body)
            async with asyncio.timeout(REQUEST_S_MAX):
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # who asks so badly gets no answer
        finally:
            self._open -= 1
            writer.close()

    async def _answer(self, head: bytes) -> tuple[str, str, str]:
        method, _, rest = head.decode("latin-1").partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        if method != "GET":
            return "405 Method Not Allowed", _PLAIN, "only GET\n"
        if path != "/metrics":
            return "404 Not Found", _PLAIN, "the metrics are at /metrics\n"
        try:
            return "200 OK", _TYPE, await self._text()
        except (*UNANSWERED, GroupError) as error:
            return "503 Service Unavailable", _PLAIN, f"{error}\n"

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
