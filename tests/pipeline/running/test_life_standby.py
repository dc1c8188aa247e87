"""A runner that stands by: what it tells, and that it waits for no rehearsal."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace import sync
from headrace.errors import BucketNotFoundError
from headrace.pipeline.declaring.reading import read
from headrace.pipeline.lease import Standby, holder_of, who_we_are
from headrace.pipeline.model import Declared, LeaseSettings, Place, Problem
from headrace.pipeline.running import life
from waiting import until_here

from ..conftest import ORDERS

SECONDS = 2.0
WITHIN_S = 20.0


class Heard:
    """A watcher."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []

    def __getattr__(self, event: str) -> Callable[..., None]:
        return lambda *what: self.events.append((event, *what))

    def of(self, event: str) -> list[tuple[Any, ...]]:
        return [each[1:] for each in list(self.events) if each[0] == event]


class Rehearsal:
    """One that finds what it is told to find, or hangs until it is given up."""

    def __init__(self, found: list[Problem] | None) -> None:
        self._found = found
        self.step = "rehearsing query 'out'"
        self.given_up = threading.Event()

    def run(self) -> list[Problem]:
        if self._found is None:
            assert self.given_up.wait(60)
            return []
        return self._found

    def keep_warm(self) -> None: ...

    def give_up(self) -> None:
        self.given_up.set()


@pytest.fixture
def declared(url: str, write: Callable[..., Path]) -> Iterator[Declared]:
    lease = LeaseSettings(Place(Path("orders.toml")), servers=(url,), bucket="l", seconds=SECONDS)
    yield replace(read(write(ORDERS)), lease=lease)
    with sync.connect(url) as connection, contextlib.suppress(BucketNotFoundError):
        connection.jetstream().delete_key_value("l")


@contextlib.contextmanager
def standing_by(
    declared: Declared, rehearsal: Rehearsal, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Heard, Standby]]:
    """A life that waits for the lease that another has; it ends when it has had its turn."""

    class Session:
        def stop(self) -> None: ...

    monkeypatch.setattr(life, "session_of", lambda declared: Session())
    monkeypatch.setattr(life, "run_here", lambda *given, **more: [])
    monkeypatch.setattr(life, "_rehearsal", lambda declared, spark: rehearsal)
    monkeypatch.setattr(life, "FIRST_S", 0.01)
    heard = Heard()
    assert declared.lease is not None
    with Standby(declared.lease, declared.name, lambda why: None) as other:
        assert other.wait(WITHIN_S)
        thread = threading.Thread(target=life.Life(declared, heard).run)
        thread.start()
        try:
            yield heard, other
        finally:
            other.__exit__(None, None, None)
            thread.join(WITHIN_S)
            assert not thread.is_alive()


def test_it_says_who_has_the_lease_and_when_it_is_ready_and_takes_over_at_once(
    declared: Declared, monkeypatch: pytest.MonkeyPatch
) -> None:
    rehearsal = Rehearsal([])
    with standing_by(declared, rehearsal, monkeypatch) as (heard, other):

        def is_ready() -> bool:
            told = heard.of("standby")
            return bool(told) and told[-1][1].is_ready and bool(told[-1][0])

        until_here(is_ready, "it is not told")
        until_here(lambda: heard.of("standing"), "it does not say that it stands by")
        other.__exit__(None, None, None)
        until_here(lambda: heard.of("active"), "it does not take over", within=WITHIN_S)
    ((token, nobody_s),) = heard.of("active")
    assert token
    assert 0 <= nobody_s < SECONDS + WITHIN_S
    assert rehearsal.given_up.is_set()


def test_what_keeps_it_from_taking_over_is_told_while_another_runs_and_it_takes_over_all_the_same(
    declared: Declared, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = Problem(Place(declared.file, 7), "there is no stream 'ORDERS'")
    with standing_by(declared, Rehearsal([problem]), monkeypatch) as (heard, other):
        until_here(
            lambda: any(ready.problems == (problem,) for _, ready in heard.of("standby")),
            "it is not told",
        )
        assert not heard.of("active")
        other.__exit__(None, None, None)
        until_here(lambda: heard.of("active"), "it does not take over", within=WITHIN_S)


def test_a_rehearsal_that_hangs_keeps_nobody_from_taking_over(
    declared: Declared, monkeypatch: pytest.MonkeyPatch
) -> None:
    rehearsal = Rehearsal(None)
    with standing_by(declared, rehearsal, monkeypatch) as (heard, other):
        until_here(lambda: heard.of("standby"), "it does not stand by")
        other.__exit__(None, None, None)
        until_here(lambda: heard.of("active"), "it does not take over", within=WITHIN_S)
    assert rehearsal.given_up.is_set()


def test_spark_ends_before_the_lease_is_given_back_when_a_run_breaks_off(
    declared: Declared, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert declared.lease is not None
    lease, holders = declared.lease, list[str]()

    class Session:
        def stop(self) -> None:
            holders.append(holder_of(lease, declared.name))

    def break_off(*given: object, **more: object) -> None:
        raise OSError("nobody expected this")

    monkeypatch.setattr(life, "session_of", lambda declared: Session())
    monkeypatch.setattr(life, "run_here", break_off)
    with pytest.raises(OSError, match="nobody expected this"):
        life.Life(declared, Heard()).run()
    assert holders == [who_we_are(), ""]
