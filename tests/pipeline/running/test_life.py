"""The life of a runner whose session does not start."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkRuntimeError

from headrace.pipeline.declaring.reading import read
from headrace.pipeline.failures.supervising import JavaLost
from headrace.pipeline.running import life

from ..conftest import ORDERS


class Heard:
    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None


@pytest.mark.parametrize(
    "error",
    [
        PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={}),
        Py4JNetworkError("gone"),
    ],
)
def test_a_java_that_ends_as_it_starts_is_a_failure_unless_all_were_asked_to_end(
    write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    declared = read(write(ORDERS))
    asked = False

    def session(*_: Any) -> None:
        if asked:
            os.kill(os.getpid(), signal.SIGTERM)
        raise error

    monkeypatch.setattr(life, "session_of", session)
    watcher: Any = Heard()
    with pytest.raises(type(error)):
        life.Life(declared, watcher).run()
    asked = True
    runner = life.Life(declared, watcher)
    assert runner.run() == []
    assert runner.signals == {"SIGTERM": 1}


@pytest.mark.parametrize("is_asked_to_end", [False, True])
def test_a_lost_java_asks_for_another_process_unless_the_run_is_to_end(
    write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, is_asked_to_end: bool
) -> None:
    class Lost:
        needs_new_java = True
        java_lost = JavaLost((1.0,), 1)

    class Stopped:
        def stop(self) -> None: ...

    def run_here(*_: Any, on_runner: Callable[..., Any], **__: Any) -> list[Any]:
        on_runner(Lost())
        if is_asked_to_end:
            os.kill(os.getpid(), signal.SIGTERM)
        return []

    Lost.stop = lambda *_, **__: None  # type: ignore[attr-defined]
    monkeypatch.setattr(life, "session_of", lambda _: Stopped())
    monkeypatch.setattr(life, "run_here", run_here)
    watcher: Any = Heard()
    runner = life.Life(read(write(ORDERS)), watcher)
    assert runner.run() == []
    assert runner.begins_anew == (None if is_asked_to_end else JavaLost((1.0,), 1))
