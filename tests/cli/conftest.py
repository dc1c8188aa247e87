"""Commands run in this process, against our broker and against nats-server."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import peers
from headrace import sync
from headrace.cli import main
from portions import one_way
from waiting import until_here


class Done(NamedTuple):
    """What a command did."""

    status: int
    out: str
    err: str

    @property
    def told(self) -> Any:
        """Its JSON; it must have succeeded."""
        assert (self.status, self.err) == (0, ""), self
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        """Its lines; it must have succeeded."""
        assert self.status == 0, self
        return self.out.splitlines()


Run = Callable[..., Done]


KEPT = ".kept"
REMOVAL_S = 60.0  # nothing is measured: a disk that others use, too, takes long
SERVERS = ("headrace", pytest.param("nats-server", marks=pytest.mark.peer))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """What servers answer is compared in ``tests/conformance``; what a command makes of it, half of the
    tests try on either, and ``make test-all`` all on both."""
    if "either_server" in metafunc.fixturenames:
        servers = one_way(SERVERS, metafunc.function.__name__)
        metafunc.parametrize("either_server", servers, indirect=True, scope="session")


@pytest.fixture(scope="session")
def either_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[peers.ServerProcess]:
    """Our broker, and nats-server: one process each for all commands."""
    directory, monitoring = tmp_path_factory.mktemp("cli"), peers.free_port()
    server = peers.start_either(request.param, directory, flags=["-m", str(monitoring)])
    server.monitoring_port = monitoring
    if (
        server.name == "nats-server"
    ):  # it may remove the empty folder of all, and fail to make one meanwhile
        streams_of(server).mkdir(parents=True, exist_ok=True)
        (streams_of(server) / KEPT).touch()
    yield server
    server.stop()


def streams_of(server: peers.ServerProcess) -> Path:
    """Where nats-server keeps streams."""
    return server.store_dir / "jetstream" / "$G" / "streams"


@pytest.fixture
def js(either_server: peers.ServerProcess) -> Iterator[sync.JetStream]:
    """A context of that server; it has no streams before a test, nor after it."""
    with sync.connect(either_server.url) as connection:
        js = connection.jetstream()
        yield js
        for name in list(js.stream_names()):
            js.delete_stream(name)
        if either_server.name == "nats-server":  # files go later, and a new stream would find them
            files = partial(os.listdir, streams_of(either_server))
            until_here(lambda: files() == [KEPT], "the files of streams stay", within=REMOVAL_S)


@pytest.fixture(autouse=True)
def _logs(logs_stay_as_they_were: None) -> None:
    """Each test here."""


@pytest.fixture
def headrace(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Run:
    """Run a command in this process: no terminal, no contexts, no server."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    def run(*arguments: str, answer: str = "") -> Done:
        stdin = io.TextIOWrapper(io.BytesIO(answer.encode()))
        monkeypatch.setattr(sys, "stdin", stdin)
        try:
            status = main([*arguments])
        except SystemExit as left:
            status = int(left.code or 0)
        return Done(status, *capsys.readouterr())

    return run


@pytest.fixture
def at_server(
    headrace: Run,
    js: sync.JetStream,
    either_server: peers.ServerProcess,
    monkeypatch: pytest.MonkeyPatch,
) -> Run:
    """Run a command at that server."""
    monkeypatch.setenv("NATS_URL", either_server.url)
    return headrace
