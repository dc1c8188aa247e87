"""A console of several servers: each page is about one, and what is written goes there and nowhere else."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import pytest

import peers
from browser import violations
from console_browser import act, check, go
from console_world import World
from headrace.cli import main
from headrace.client import JetStream, connect
from headrace.console import ConsoleServer, OtherServer, Settings
from headrace.console.servers import OTHERS_MAX
from headrace.errors import ConfigurationError
from waiting import until

pytestmark = pytest.mark.timeout(300)

OURS = pytest.mark.parametrize("server", ["headrace"], indirect=True)
NAME = "lab ä?#%"
"""A name that an address has to carry as it is."""

SECRET = "hunter22"


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[peers.ServerProcess]:
    """Another server, which wants a password."""
    directory = tmp_path_factory.mktemp("elsewhere")
    process = peers.start_headrace(directory, flags=("--user", "ann", "--pass", SECRET))
    yield process
    process.stop()


def url_of(server: peers.ServerProcess) -> str:
    return f"nats://ann:{SECRET}@{server.host}:{server.port}"


def other(name: str, url: str) -> OtherServer:
    @contextlib.asynccontextmanager
    async def there() -> AsyncIterator[JetStream]:
        async with connect(url, connect_timeout=5.0) as connection:
            yield connection.jetstream()

    return OtherServer(name=name, connect=there)


@pytest.fixture
async def there(elsewhere: peers.ServerProcess) -> AsyncIterator[JetStream]:
    """A connection to the other server, which is empty."""
    async with connect(url_of(elsewhere)) as connection:
        js = connection.jetstream()
        async for name in js.stream_names():
            await js.delete_stream(name)
        yield js


@pytest.fixture
async def several(
    server: peers.ServerProcess, js: JetStream, elsewhere: peers.ServerProcess, there: JetStream
) -> AsyncIterator[Callable[..., Any]]:
    """Starts a console of the server, of the other one, and of one that is away."""
    async with contextlib.AsyncExitStack() as stack:

        async def make(**settings: Any) -> World:
            connection = await stack.enter_async_context(connect(server.url))
            told = Settings(**{"port": 0, "interval_s": 0.2, "name": "home", **settings})
            nobody = f"nats://bob:{SECRET}@127.0.0.1:{peers.free_port()}"
            others = (other(NAME, url_of(elsewhere)), other("away", nobody))
            console = await stack.enter_async_context(
                ConsoleServer(told, connection, others=others)
            )
            client = httpx2.AsyncClient(base_url=console.url, timeout=60, verify=False)
            await stack.enter_async_context(client)
            return World(connection, js, console, client)

        yield make


AT = f"/at/{quote(NAME, safe='')}"


async def test_each_server_is_asked_and_written_to_for_itself(
    several: Callable[..., Any], js: JetStream, there: JetStream
) -> None:
    world = await several()
    session = await world.get("/session")
    assert [each["title"] for each in session["servers"]] == ["home", NAME, "away"]
    await js.create_stream(name="BOTH", subjects=("both",))
    await there.create_stream(name="BOTH", subjects=("both",))
    await there.create_stream(name="THERE", subjects=("there",))
    for path, streams in (("", 1), (AT, 2)):
        assert (await world.get(f"{path}/overview?now=1"))["streams"] == streams
    await world.send("POST", f"{AT}/streams/BOTH/messages", subject="both", payload="x")
    assert (await (await js.stream("BOTH")).info()).state.messages == 0
    assert (await (await there.stream("BOTH")).info()).state.messages == 1
    await world.send("DELETE", f"{AT}/streams/BOTH", confirm="BOTH")
    assert [name async for name in js.stream_names()] == ["BOTH"]
    assert [name async for name in there.stream_names()] == ["THERE"]
    assert (await world.get("/at/nobody/overview", 404))["code"] == "no_such_server"


@OURS
async def test_an_object_is_uploaded_to_another_server(
    several: Callable[..., Any], there: JetStream
) -> None:
    world = await several()
    store = await there.create_object_store("FILES")
    large = os.urandom(2 * 1024 * 1024)  # more than a document may have
    response = await world.http.put(
        f"/api{AT}/objects/FILES/large", content=large, headers={"x-headrace-console": "1"}
    )
    assert response.status_code == 200, response.text
    assert await store.get("large") == large


@OURS
def port_of(caplog: pytest.LogCaptureFixture) -> int:
    """Where the server is that the log says is away; nobody else is told."""
    line = next(each for each in caplog.messages if each.startswith("away cannot be reached: "))
    assert SECRET not in line
    return int(line.rpartition(":")[0].rpartition(":")[2])


async def test_a_server_that_is_away_is_said_asked_once_and_comes_back(
    several: Callable[..., Any], tmp_path: Path, js: JetStream, caplog: pytest.LogCaptureFixture
) -> None:
    world = await several()
    told = await world.get("/at/away/overview", 503)
    assert told["message"] == "away cannot be reached; the console's log says why"
    port = port_of(caplog)
    process = peers.start_headrace(tmp_path, flags=("--user", "bob", "--pass", SECRET), port=port)
    try:

        async def is_back() -> bool:
            answer = await world.http.get("/api/at/away/overview")
            return bool(answer.status_code == 200)

        await until(is_back, "it is not tried again", within=60)
        seen = (await world.get("/at/away/overview"))["server"]
        assert seen["connected"]
        assert str(port) not in str(seen)
    finally:
        process.stop()


@OURS
async def test_credentials_never_reach_a_browser_and_names_only_who_may_look(
    several: Callable[..., Any],
) -> None:
    world = await several(password="opensesame")
    assert (await world.get("/session"))["servers"] == []
    await world.get(f"{AT}/overview", 401)
    await world.send("POST", "/session", password="opensesame")
    said = [
        (await world.http.get(f"/api{path}")).text
        for path in ("/session", f"{AT}/overview", f"{AT}/connections", "/at/away/overview")
    ]
    assert NAME in json.loads(said[0])["servers"][1]["name"]
    assert SECRET not in "".join(said)


@OURS
async def test_read_only_is_for_all_servers(several: Callable[..., Any]) -> None:
    world = await several(read_only=True)
    refused = await world.send("POST", f"{AT}/streams", 403, config={"name": "S"})
    assert refused["code"] == "read_only"


@OURS
async def test_names_are_checked_before_anything_is_served(js: JetStream) -> None:
    names = (("a", "a"), ("",), ("a/b",), tuple(map(str, range(OTHERS_MAX + 1))))
    for each in names:
        with pytest.raises(ConfigurationError, match="accepted"):
            ConsoleServer(
                Settings(port=0),
                js.connection,
                others=[other(name, "nats://127.0.0.1") for name in each],
            )


@OURS
async def test_a_server_is_chosen_in_the_sidebar_and_its_page_writes_there(
    several: Callable[..., Any], page: Any, js: JetStream, there: JetStream
) -> None:
    from playwright.async_api import expect

    world = await several()
    await js.create_stream(name="BOTH", subjects=("both.here",))
    await there.create_stream(name="BOTH", subjects=("both.there",))
    await page.goto(f"{world.console.url}/#/streams")
    await page.locator("main td", has_text="both.here").wait_for()
    await page.get_by_label("Server", exact=True).focus()
    await page.keyboard.type("lab")
    await page.keyboard.press("Enter")
    await page.locator("main td", has_text="both.there").wait_for()
    await expect(page.locator("main td", has_text="both.here")).to_have_count(0)
    assert page.url.endswith(f"/#/@{quote(NAME, safe='')}/streams")
    await expect(page).to_have_title(f"Streams · {NAME} · Headrace")
    await act(page, "Create a stream", name="NEW", subjects="new")
    await page.locator("main h2", has_text="NEW").wait_for()
    assert [name async for name in js.stream_names()] == ["BOTH"]
    await page.reload()  # the address alone says where
    await page.locator("main h2", has_text="NEW").wait_for()
    await page.get_by_role("button", name="Delete …").click()
    await page.locator("dialog[open]", has_text=f"At {NAME}").wait_for()
    await page.keyboard.press("Escape")
    await act(page, "Delete", confirm="NEW")
    await page.locator("main td", has_text="both.there").wait_for()
    assert [name async for name in there.stream_names()] == ["BOTH"]
    await page.keyboard.press("g")
    await page.keyboard.press("o")
    await page.locator("main h2", has_text="Overview").wait_for()
    assert f"/#/@{quote(NAME, safe='')}/overview" in page.url
    await page.get_by_label("Server", exact=True).select_option("")
    await expect(page).to_have_title("Overview · Headrace")
    assert page.url.endswith("/#/overview")
    check(page)


@OURS
async def test_a_page_says_that_its_server_is_away_and_shows_it_when_it_is_there(
    several: Callable[..., Any], page: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from playwright.async_api import expect

    world = await several()
    await world.get("/at/away/overview", 503)
    port = port_of(caplog)
    await page.goto(f"{world.console.url}/#/@away/streams")
    away = page.get_by_text("away cannot be reached").first
    await away.wait_for()
    process = peers.start_headrace(tmp_path, flags=("--user", "bob", "--pass", SECRET), port=port)
    try:
        await page.get_by_text("There are no streams yet").wait_for(timeout=60_000)
        await expect(away).to_have_count(0)
    finally:
        process.stop()
    await page.get_by_role("alert").first.wait_for(timeout=60_000)
    await go(page, "@nobody/streams", "Streams")
    await page.get_by_text("this console shows no server 'nobody'").wait_for()
    check(page)


@OURS
async def test_axe_finds_nothing_where_servers_are_chosen(
    several: Callable[..., Any], page: Any
) -> None:
    world = await several()
    await page.goto(f"{world.console.url}/#/@away/overview")
    await page.get_by_text("away cannot be reached").first.wait_for()
    for width in (1300, 390):
        await page.set_viewport_size({"width": width, "height": 850})
        assert await violations(page) == []
    check(page)


@OURS
def test_the_command_shows_contexts_each_with_its_own_login(
    server: peers.ServerProcess,
    elsewhere: peers.ServerProcess,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    logs_stay_as_they_were: None,
) -> None:
    contexts = tmp_path / "nats" / "context"
    contexts.mkdir(parents=True)
    user = {"user": "ann", "password": SECRET}
    for name, said in (("home", {"url": server.url}), ("lab", {"url": elsewhere.url, **user})):
        (contexts / f"{name}.json").write_text(json.dumps(said))
    environ = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path)}
    asked = ("console", "--port", "0")
    with running(environ, "--context", "home", *asked, "--contexts") as console:
        assert titles(console) == ["home", "lab"]
        seen = httpx2.get(f"{console}/api/at/lab/overview", timeout=60, verify=False).json()
        assert str(elsewhere.port) not in str(seen["server"])
    with running({**environ, "NATS_URL": server.url}, *asked, "--also", "lab") as console:
        # The variable leads to the first server, and to no other.
        first, second = titles(console)
        assert str(server.port) not in first
        assert second == "lab"
        seen = httpx2.get(f"{console}/api/at/lab/overview", timeout=60, verify=False).json()
        assert str(elsewhere.port) not in str(seen["server"])
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for wrong, why in (
        (("--also", "lob"), "did you mean 'lab'?"),
        (("--monitoring", "lab=http://127.0.0.1:1"), "--also shows another"),
        (("--monitoring", "localhost"), "accepted: http://HOST:PORT"),
    ):
        assert main(["-s", server.url, *asked, *wrong])
        complaint = capsys.readouterr().err
        assert why in complaint
        assert "Traceback" not in complaint


def titles(console: str) -> list[str]:
    session = httpx2.get(f"{console}/api/session", timeout=60, verify=False).json()
    return [each["title"] for each in session["servers"]]


@contextlib.contextmanager
def running(environ: dict[str, str], *arguments: str) -> Iterator[str]:
    """The command in a process of its own; gives its URL."""
    with subprocess.Popen(
        [sys.executable, "-m", "headrace", *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env=environ,
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()[3]
        finally:
            process.terminate()
