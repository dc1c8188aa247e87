"""The servers that are compared, each started fresh for every measurement, all on one disk."""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

import peers  # noqa: E402

__all__ = [
    "ALL",
    "HEADRACE",
    "NATS_ALWAYS",
    "NATS_DEFAULT",
    "NATS_ONE_CORE",
    "Contender",
    "headrace_at",
    "running",
]

STREAM = "BENCH"


@dataclass(frozen=True)
class Contender:
    """A server in one durability mode; ``meaning`` says what its acknowledgement promises."""

    name: str
    meaning: str
    start: Callable[[Path], peers.ServerProcess]


HEADRACE = Contender("headrace", "on disk", lambda at: peers.start_headrace(at))
NATS_ALWAYS = Contender(
    "nats-server, sync always", "on disk", lambda at: peers.start_nats_server(at, sync="always")
)
NATS_DEFAULT = Contender(
    "nats-server, default", "in the page cache", lambda at: peers.start_nats_server(at)
)
# For comparing clients on a machine of two cores: the server keeps to one of them and leaves the other
# to the client, and its garbage collector runs a quarter as often. Its fastest setting here, too.
NATS_ONE_CORE = Contender(
    "nats-server on one core",
    "in the page cache",
    lambda at: peers.start_nats_server(at, env={"GOMAXPROCS": "1", "GOGC": "400"}),
)
ALL = [HEADRACE, NATS_ALWAYS, NATS_DEFAULT]


def sources_of(checkout: str) -> Path:
    """Where a checkout has the package."""
    sources = Path(checkout, "src").resolve()
    if not (sources / "headrace").is_dir():
        raise SystemExit(f"{sources} has no package headrace; accepted: the root of a checkout")
    return sources


def headrace_at(checkout: str) -> Contender:
    """Headrace from the sources of another checkout, for a comparison in one run."""
    env = {"PYTHONPATH": str(sources_of(checkout))}
    return Contender("headrace beside", "on disk", lambda at: peers.start_headrace(at, env=env))


@contextlib.contextmanager
def running(contender: Contender) -> Iterator[peers.ServerProcess]:
    """A fresh server on an empty store next to the sources: not on a memory file system."""
    area = ROOT / "bench" / "results" / "stores"
    area.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(dir=area))
    server = contender.start(directory)
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(directory)
