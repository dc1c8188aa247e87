"""The applications of the page on web frameworks, started as it says, while the server goes and comes."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import chaos
import guides
import peers
from headrace.client import JetStream
from waiting import until

EXAMPLES = guides.ROOT / "examples"
PAGE = guides.ROOT / "docs" / "how-to" / "web.md"
PROGRAMS = ("fastapi_shop", "flask_shop", "django_shop")
GUNICORN = ["gunicorn", "--threads", "4", "--no-control-socket", "--bind"]
STARTED = {
    "fastapi": ["uvicorn", "fastapi_shop:app", "--workers", "2", "--port"],
    "flask": [*GUNICORN, "127.0.0.1:{port}", "--workers", "2", "--preload", "flask_shop:app"],
    "django": [*GUNICORN, "127.0.0.1:{port}", "--workers", "2", "django_shop:wsgi"],
    "django as ASGI": ["uvicorn", "django_shop:asgi", "--port"],
}
LATER = dict.fromkeys(STARTED, True) | {"fastapi": False}
"""Which of them have a view for orders that is written asynchronously beside the others."""
ORDER = {"customer": "eve", "item": "plums"}
ELSEWHERE = pytest.param("nats-server", marks=pytest.mark.slow("tests/examples/test_web.py"))
ON_OURS = pytest.mark.parametrize("reference_server", ["headrace", ELSEWHERE], indirect=True)
"""For what a framework decides, whatever the server. One of them has its orders stored on either."""
WITHIN_S = 60.0  # generous: processes start on a busy machine

pytestmark = pytest.mark.peer


def test_the_page_shows_the_programs() -> None:
    shown = re.findall(r"(?m)^```\{literalinclude\} (\S+)$", PAGE.read_text())
    files = [(PAGE.parent / path).resolve() for path in shown]
    assert files == [(EXAMPLES / f"{name}.py").resolve() for name in PROGRAMS]


def test_what_the_page_says_of_a_closed_loop(
    reference_server: peers.ServerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    block = guides.blocks_of(PAGE)[-1]
    names: dict[str, Any] = {}
    exec(block.code.replace("nats://127.0.0.1:4222", reference_server.url), names)
    assert capsys.readouterr().out.splitlines() == block.printed
    with warnings.catch_warnings():  # nobody can close the socket of a loop that is closed
        warnings.simplefilter("ignore", ResourceWarning)
        names.clear()
        gc.collect()


class App:
    """An application that runs, as its clients see it."""

    def __init__(self, port: int, log: Path) -> None:
        self._base = f"http://127.0.0.1:{port}"
        self.log = log

    async def get(self, path: str) -> tuple[int, Any]:
        return await asyncio.to_thread(self._asked, urllib.request.Request(self._base + path))

    async def post(self, path: str, key: str = "") -> tuple[int, Any]:
        headers = {"Content-Type": "application/json"}
        if key:
            headers["Idempotency-Key"] = key
        body = json.dumps(ORDER).encode()
        request = urllib.request.Request(self._base + path, body, headers, method="POST")
        return await asyncio.to_thread(self._asked, request)

    def _asked(self, request: urllib.request.Request) -> tuple[int, Any]:
        """Status and document; 0 where nobody listens."""
        try:
            with urllib.request.urlopen(request, timeout=WITHIN_S) as answer:
                status, body = answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                status, body = error.code, error.read()
        except OSError:
            return 0, None
        return status, json.loads(body) if body.startswith((b"{", b'"')) else body

    async def stored(self, path: str, key: str) -> Any:
        """The answer of an order that is repeated until it is stored."""

        async def answer() -> Any:
            status, said = await self.post(path, key)
            assert status in {0, 201, 503}, said
            return said if status == 201 else None

        return await until(answer, f"{key} was not stored", within=WITHIN_S)


@asynccontextmanager
async def running(name: str, url: str, directory: Path) -> AsyncIterator[App]:
    """It is started, and ends in good time when it is told to, without a complaint."""
    port = peers.free_port()
    command = [each.format(port=port) for each in STARTED[name]]
    if command[-1] == "--port":
        command.append(str(port))
    log = directory / "log"
    environment = {**os.environ, "NATS_URL": url, "PYTHONDONTWRITEBYTECODE": "1"}
    with log.open("ab") as sink:
        process = subprocess.Popen(
            [sys.executable, "-X", "dev", "-m", *command],
            cwd=EXAMPLES,
            env=environment,
            stdout=sink,
            stderr=sink,
        )
    try:
        app = App(port, log)

        async def is_there() -> bool:
            assert process.poll() is None, log.read_text()
            return (await app.get("/healthz"))[0] == 200

        await until(is_there, f"{name} does not answer", within=WITHIN_S)
        yield app
        process.send_signal(signal.SIGTERM)
        status = await asyncio.to_thread(process.wait, WITHIN_S)
        assert status in {0, -signal.SIGTERM}, log.read_text()
    finally:
        process.kill()
        process.wait()
    said = log.read_text()
    for complaint in ("Traceback", "unclosed transport", "never awaited", "Event loop is closed"):
        assert complaint not in said, said


@pytest.mark.parametrize(
    ("reference_server", "name"),
    [
        *[("headrace", name) for name in STARTED],
        ("nats-server", "fastapi"),
        *[
            pytest.param(
                "nats-server",
                name,
                marks=pytest.mark.slow("tests/examples/test_web.py"),
            )
            for name in STARTED
            if name != "fastapi"
        ],
    ],
    indirect=["reference_server"],
)
async def test_an_application_stores_each_order_once_and_says_when_the_server_is_away(
    name: str, js: JetStream, proxy: chaos.ChaosProxy, tmp_path: Path
) -> None:
    async with running(name, proxy.url, tmp_path) as app:
        before = await views_share_the_connection_of_their_process(app, proxy) if LATER[name] else 0
        assert (await app.stored("/orders", "a"))["number"] == before + 1
        assert await app.stored("/orders", "a") == {"number": before + 1, "again": True}

        async def refused() -> int:
            status = (await app.post("/orders"))[0]  # without a key
            return 0 if status == 503 else status  # of a worker that has no link yet

        assert await until(refused, "it does not answer", within=WITHIN_S) in {400, 422}

        async def is_ready() -> bool:
            return await app.get("/readyz") == (200, {"ready": True, "reason": ""})

        await until(is_ready, "it is not ready", within=WITHIN_S)

        await proxy.go_away()
        status, said = await app.post("/orders", "b")
        assert status == 503
        assert said["stored"] in {"no", "unknown"}

        async def unready() -> str:
            status, said = await app.get("/readyz")
            return str(said["reason"]) if status == 503 else ""

        await until(unready, "it stays ready", within=WITHIN_S)
        assert (await app.get("/healthz"))[0] == 200
        await proxy.come_back()
        await app.stored("/orders", "b")
        assert (await app.stored("/orders", "b"))["again"]
        stream = await js.stream("ORDERS")
        assert (await stream.info()).state.messages == before + 2
        assert json.loads((await stream.get_message(before + 2)).payload) == ORDER


async def views_share_the_connection_of_their_process(app: App, proxy: chaos.ChaosProxy) -> int:
    """Asynchronous ones, each of which would have a loop of its own; how many orders they have stored."""
    orders = [app.stored("/later", f"k{number}") for number in range(20)]
    numbers = {each["number"] for each in await asyncio.gather(*orders)}
    assert numbers == set(range(1, 21))
    assert proxy.accepted <= 2  # as many as there are processes
    return len(numbers)


@ON_OURS
@pytest.mark.parametrize("comes", [True, False])
async def test_an_application_starts_before_its_server_and_ends_on_sigterm_while_it_is_away(
    comes: bool, js: JetStream, proxy: chaos.ChaosProxy, tmp_path: Path
) -> None:
    await proxy.go_away()
    async with running("fastapi", proxy.url, tmp_path) as app:
        said = {"ready": False, "reason": "there is no connection yet"}
        assert await app.get("/readyz") == (503, said)
        assert (await app.post("/orders", "a"))[1]["stored"] == "no"
        if comes:
            await proxy.come_back()
            await app.stored("/orders", "a")
            await proxy.go_away()
