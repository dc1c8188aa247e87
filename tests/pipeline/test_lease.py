from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace import sync
from headrace.errors import (
    BucketNotFoundError,
    ConfigurationError,
    ConnectFailedError,
    StreamNotFoundError,
)
from headrace.pipeline.checkpoints.checkpoint import Start
from headrace.pipeline.declaring.reading import read
from headrace.pipeline.lease import Standby, who_we_are
from headrace.pipeline.model import LeaseSettings, Place
from headrace.pipeline.resets import reset
from headrace.pipeline.running import life
from waiting import block, until_here

from .conftest import ORDERS

SECONDS = 2.0
WITHIN_S = 10.0


@pytest.fixture
def settings(url: str) -> Iterator[LeaseSettings]:
    place = Place(Path("orders.toml"))
    yield LeaseSettings(place, servers=(url,), bucket="leases", seconds=SECONDS)
    with sync.connect(url) as connection:
        js = connection.jetstream()
        with contextlib.suppress(BucketNotFoundError):
            js.delete_key_value("leases")
        with contextlib.suppress(StreamNotFoundError):
            js.delete_stream("PINNED")  # others of its kind have the same subjects


def test_the_second_gets_the_lease_when_the_first_gives_it_back(settings: LeaseSettings) -> None:
    lost: list[str] = []
    with Standby(settings, "orders", lost.append) as first:
        token = first.wait(WITHIN_S)
        assert token
        with Standby(settings, "orders", lost.append) as second:
            assert second.wait(0.01) == 0
            until_here(lambda: second.holder() == who_we_are(), "the holder is not known")
            first.__exit__(None, None, None)
            assert second.wait(WITHIN_S) > token
    assert lost == []


def test_a_lease_that_was_taken_away_is_told(settings: LeaseSettings) -> None:
    told = threading.Event()
    lost: list[str] = []

    def on_lost(why: str) -> None:
        lost.append(why)
        told.set()

    with Standby(settings, "orders", on_lost) as standby:
        assert standby.wait(WITHIN_S)
        with sync.connect(settings.servers[0]) as connection:
            bucket = connection.jetstream().key_value("leases")
            bucket.put("orders", b"an admin " + b"1" * 22)
        assert told.wait(WITHIN_S)
        assert lost == ["the lease 'orders' was lost: an admin has it"]


def test_a_server_that_is_not_there_is_told(settings: LeaseSettings, free_port: int) -> None:
    away = replace(settings, servers=(f"nats://127.0.0.1:{free_port}",))
    with pytest.raises(ConnectFailedError), Standby(away, "orders", lambda why: None):
        pass


@pytest.mark.parametrize("kind", ["bucket", "pinned"])
def test_a_pipeline_that_runs_somewhere_is_not_reset(
    settings: LeaseSettings, write: Callable[..., Path], stream: str, kind: Any
) -> None:
    lease = replace(settings, kind=kind, bucket="leases" if kind == "bucket" else "PINNED")
    servers = f'servers = "{settings.servers[0]}"'
    text = ORDERS.replace('stream = "ORDERS"', f'stream = "{stream}", {servers}')
    declared = replace(read(write(text)), lease=lease)
    begin = Start("earliest")
    sinks = list(declared.sinks.values())
    assert reset(declared, sinks, begin), "nobody ever ran it"
    with Standby(lease, "orders", lambda why: None) as standby:
        assert standby.wait(WITHIN_S)
        with pytest.raises(ConfigurationError, match="has the lease of 'orders' and runs it"):
            reset(declared, sinks, begin)
    assert reset(declared, sinks, begin), "it has ended"


class Heard:
    """A watcher."""

    def __init__(self) -> None:
        self.events: list[tuple[str, ...]] = []

    def __getattr__(self, event: str) -> Callable[..., None]:
        return lambda *what: self.events.append((event, *map(str, what)))


@pytest.mark.parametrize("kind", ["bucket", "pinned"])
def test_a_function_that_blocks_for_longer_than_a_lease_lasts_does_not_cost_it(
    settings: LeaseSettings,
    write: Callable[..., Path],
    stream: str,
    kind: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a sink, say; another runner that stands by meanwhile does not get the lease."""
    lease = replace(settings, kind=kind, bucket="leases" if kind == "bucket" else "PINNED")
    declared = replace(read(write(ORDERS)), lease=lease)
    told: list[Any] = []

    class Session:
        def stop(self) -> None: ...

    class Runner:
        needs_new_java = False

        def stop(self, why: str, *, at_once: bool = False) -> None:
            told.append(why)

    def turn(*given: Any, on_runner: Callable[[Any], None], **more: Any) -> list[Any]:
        on_runner(Runner())
        with Standby(lease, "orders", lambda why: None) as other:
            block(2 * SECONDS)
            told.append(other.wait(0.01))
        return []

    monkeypatch.setattr(life, "session_of", lambda declared: Session())
    monkeypatch.setattr(life, "run_here", turn)
    assert life.Life(declared, Heard()).run() == []
    assert told == [0]


def test_a_runner_that_loses_the_lease_ends_its_queries_at_once_and_stands_by_again(
    settings: LeaseSettings, write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    declared = replace(read(write(ORDERS)), lease=settings)
    turns: list[str] = []

    class Session:
        def stop(self) -> None:
            turns.append("session stopped")

    class Runner:
        needs_new_java = False

        def __init__(self) -> None:
            self.stopped = threading.Event()
            self.why = ""

        def stop(self, why: str, *, at_once: bool = False) -> None:
            self.why = f"{why} {at_once}"
            self.stopped.set()

    def turn(*given: Any, on_runner: Callable[[Any], None], **more: Any) -> list[Any]:
        runner = Runner()
        on_runner(runner)
        if turns:
            turns.append("the second turn")
            return []
        with sync.connect(settings.servers[0]) as connection:
            connection.jetstream().key_value("leases").delete("orders")
        assert runner.stopped.wait(WITHIN_S)
        turns.append(runner.why)
        return []

    monkeypatch.setattr(life, "session_of", lambda declared: Session())
    monkeypatch.setattr(life, "run_here", turn)
    heard = Heard()
    assert life.Life(declared, heard).run() == []
    assert turns == [
        "the lease 'orders' was lost: it ran out, or somebody removed it True",
        "the second turn",
        "session stopped",
    ]
    assert [event for event, *_ in heard.events if event == "active"] == ["active", "active"]
