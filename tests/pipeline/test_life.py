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

from headrace.pipeline import life
from headrace.pipeline.reading import read

from .conftest import ORDERS


class Heard:
    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None


@pytest.mark.parametrize(
    "error", [PySparkRuntimeError("Java ended"), Py4JNetworkError("gone")]
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
