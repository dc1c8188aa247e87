"""A console that is stopped while pages are open says nothing of it."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import peers
from headrace import sync
from portions import some

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.parametrize("server", ["headrace"], indirect=True),
]


@pytest.fixture
def console(
    server: peers.ServerProcess, tmp_path: Path
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A console of its own process, and where it is."""
    process = subprocess.Popen(
        [sys.executable, "-m", "headrace", "-s", server.url, "console", "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "XDG_CONFIG_HOME": str(tmp_path)},
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        yield process, line.split()[3]
    finally:
        process.kill()
        process.communicate()


WAYS = [
    *itertools.product(["/api/live", "/api/streams/TAB/follow"], [signal.SIGINT, signal.SIGTERM])
]


@pytest.mark.parametrize(("page", "number"), some(WAYS, 3))  # each page and each signal once
def test_an_open_page_is_no_reason_for_a_traceback(
    server: peers.ServerProcess,
    console: tuple[subprocess.Popen[str], str],
    number: signal.Signals,
    page: str,
) -> None:
    process, url = console
    with sync.connect(server.url) as connection:
        connection.jetstream().create_or_update_stream(name="TAB", subjects=["tab"])
    place = urlsplit(url)
    with socket.create_connection((place.hostname, place.port), timeout=60) as tab:
        tab.sendall(f"GET {page} HTTP/1.1\r\nHost: {place.netloc}\r\n\r\n".encode())
        heard = b""
        while b"\nevent: " not in heard:
            more = tab.recv(65536)
            assert more, heard
            heard += more
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert (out, err, process.returncode) == ("", "", 0)
