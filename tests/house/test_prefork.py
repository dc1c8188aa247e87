"""Readers of streams in the tests' session of Spark are forked, and are as if they had been started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping

import pytest

import peers
import prefork
from prefork.sitecustomize import RUNNER
from waiting import until_here

peers.package("pyspark")
WITHIN_S = 60.0


@pytest.fixture(scope="module")
def environment() -> Iterator[dict[str, str]]:
    """What a reader is started with, while there is a process to fork it."""
    path = os.pathsep.join([prefork.FOLDER, os.environ.get("PYTHONPATH", "")])
    given = {**os.environ, "PYTHONPATH": path}
    with prefork.serving(os.environ) as place:
        yield {**given, prefork.PLACE: place}


def started(environment: Mapping[str, str], **more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", RUNNER],
        env={**environment, **more},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("is_served", [True, False])
def test_a_reader_has_the_environment_and_the_streams_of_its_start_and_tells_its_end(
    environment: dict[str, str], *, is_served: bool
) -> None:
    if not is_served:  # it goes on as any other Python
        environment = {**environment, prefork.PLACE: "/nowhere"}
    with started(environment, PYTHON_WORKER_FACTORY_PORT="no port") as reader:
        said, complained = reader.communicate(timeout=WITHIN_S)
    assert (reader.returncode, said) == (1, "")
    assert "ValueError: invalid literal for int() with base 10: 'no port'" in complained
    assert ("prefork/server.py" in complained) == is_served


def test_a_reader_ends_with_the_process_that_spark_has_started(environment: dict[str, str]) -> None:
    import socket

    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        listening.settimeout(WITHIN_S)
        port = str(listening.getsockname()[1])
        secret = {"PYTHON_WORKER_FACTORY_SECRET": "secret", "SPARK_AUTH_SOCKET_TIMEOUT": "600"}
        with started(environment, PYTHON_WORKER_FACTORY_PORT=port, **secret) as process:
            reader, _ = listening.accept()
            reader.settimeout(WITHIN_S)
            with reader:
                assert reader.recv(4)  # it has begun to say who it is
                process.send_signal(signal.SIGTERM)
                until_here(lambda: not reader.recv(1024), "it goes on", within=WITHIN_S)
