"""What programs do at a broker, from first word to last, as the users of the page of permissions."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import httpx2

import headrace
import peers
from guides import ROOT
from headrace import ConsumerConfig, DeadLetter, JetStream, JetStreamMessage
from headrace.console import ConsoleServer, Settings
from headrace.groups import GroupMessage, PartitioningFilter, elastic
from headrace.jobs.client import AsyncJobsClient
from headrace.worker import Worker, run
from readers import pieces_of
from waiting import until

__all__ = [
    "ADMIN",
    "PAGE",
    "console",
    "feed",
    "member",
    "prepare",
    "publisher",
    "start_with_page",
    "url_of",
    "worker",
]

PAGE = ROOT / "docs" / "how-to" / "permissions.md"
ADMIN = "admin"
"""The user of the page who may do everything: who makes streams and groups."""


def start_with_page(kind: str, directory: Path) -> peers.ServerProcess:
    """A server of this name with the users of the page."""
    directory.mkdir(parents=True, exist_ok=True)
    conf = next(each.text for each in pieces_of(PAGE) if each.language == "text")
    if kind == "nats-server":
        return peers.start_nats_server(directory, config=conf, flags=["-DV"])
    file = directory / "users.conf"
    file.write_text(f"jetstream {{ store_dir: {str(directory / 'store')!r} }}\n{conf}")
    return peers.start_headrace(directory, flags=["-c", str(file), "-DV"])


def url_of(server: peers.ServerProcess, user: str) -> str:
    """How this user of the page connects."""
    return server.url.replace("nats://", f"nats://{user}:{user}-password@")


async def prepare(js: JetStream) -> None:
    """What somebody with all rights makes before: streams, and a group with its members."""
    await js.create_stream(name="ORDERS", subjects=["orders.*"], allow_direct=True)
    await js.create_stream(name="DEAD", subjects=["dead.>"])
    await js.create_stream(name="OUTCOMES", subjects=["jobs.outcomes"])
    await (await js.create_key_value("CONF")).put("key", b"value")
    filters = [PartitioningFilter("orders.*", (1,))]
    await elastic.create(js, "ORDERS", "billing", max_members=2, partitioning_filters=filters)
    await elastic.add_members(js, "ORDERS", "billing", ["a"])


async def publisher(url: str) -> None:
    """Publishes one by one, and by a window."""
    async with headrace.connect(url) as connection:
        js = connection.jetstream()
        await js.publish("orders.1", b"1")
        async with js.publisher() as window:
            await window.send("orders.2", b"2")


async def worker(url: str) -> None:
    """Makes its consumer, handles a message, and puts one that fails aside."""
    app, seen, over = Worker("mailer"), list[bytes](), asyncio.Event()

    @app.consumer(
        "ORDERS",
        "mailer",
        config=ConsumerConfig(filter_subject="orders.*"),
        on_failure=DeadLetter("dead.mailer", after=1),
    )
    async def handle(message: JetStreamMessage) -> None:
        seen.append(message.payload)
        if message.payload == b"2":
            raise ValueError("not this one")

    running = asyncio.create_task(run(app, over, servers=url))
    await until(lambda: len(seen) >= 2 or running.done(), "nothing came", within=20)
    over.set()
    await running


async def member(url: str) -> None:
    """Joins a group, handles what there is, and leaves."""
    seen: list[str] = []

    async def handle(message: GroupMessage) -> None:
        seen.append(message.subject)
        await message.ack_sync()

    async with (
        headrace.connect(url) as connection,
        elastic.join(connection.jetstream(), "ORDERS", "billing", "a", handle),
    ):
        await until(lambda: len(seen) >= 2, "nothing came", within=20)


LOOKED_AT = (
    "/overview",
    "/streams",
    "/streams/ORDERS",
    "/streams/ORDERS/messages",
    "/streams/ORDERS/messages/1",
    "/streams/DEAD/dead",
    "/consumers",
    "/streams/ORDERS/consumers/mailer",
    "/groups",
    "/groups/elastic/ORDERS/billing",
    "/buckets",
    "/buckets/CONF/keys",
    "/objects",
    "/pipelines",
    "/account",
    "/alerts",
)
"""Pages of a console."""


async def console(url: str) -> None:
    """Looks at everything, and changes nothing."""
    async with headrace.connect(url) as connection:
        settings = Settings(port=0, read_only=True)
        async with (
            ConsoleServer(settings, connection) as served,
            httpx2.AsyncClient(base_url=served.url) as http,
        ):
            for path in LOOKED_AT:
                answer = await http.get(f"/api{path}")
                assert answer.status_code == 200, (path, answer.text)


async def feed(url: str, admin: str) -> None:
    """A job service whose channel is fed from the stream, and that publishes outcomes."""
    from headrace.jobs.config import Config, FeedConfig, OutcomesConfig
    from headrace.jobs.server import serve

    listening: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    with tempfile.TemporaryDirectory() as folder:
        config = Config(
            port=0,
            push=False,
            database=f"sqlite:///{folder}/jobs.db",
            feeds=[FeedConfig(channel="orders", stream="ORDERS", url=url)],
            outcomes=OutcomesConfig(url=url),
            channels={
                "orders": {
                    "token": "ct",
                    "consumers": {
                        "mailer": {"token": "kt", "type": "pull", "settings": {"outcomes": True}}
                    },
                }
            },
        )
        serving = asyncio.create_task(serve(config, listening.set_result))
        async with AsyncJobsClient(await listening) as jobs:
            queue = jobs.queue("orders", "mailer", channel_token="ct", consumer_token="kt")
            found = await queue.claim(1, wait_s=20)
            await queue.complete(found)
            async with headrace.connect(admin) as connection:
                await until_stored(connection.jetstream(), "OUTCOMES", 1)
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        assert len(found) == 1


async def until_stored(js: JetStream, stream: str, count: int) -> None:
    """Until a stream has so many messages."""

    async def is_so() -> bool:
        return (await (await js.stream(stream)).info()).state.messages >= count

    await until(is_so, f"{stream} does not fill", within=20)
