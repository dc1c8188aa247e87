"""Other implementations of consumer groups, as commands: of natsio-pcgroups (Python), and of the Go one.

Each has a worker that appends to the log of ``worklog.py``, and verbs that are asked for in the words of
``peer_verbs.py``. Nobody has to have them to work on this project.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from group_processes.worklog_checker import Handling, Verdict
from newer_python import newer_python

__all__ = ["GO_PEER", "STRANGERS", "Stranger", "is_wanted"]

GO_PEER = "HEADRACE_GO_PEER"
MISSING_GO = f"{GO_PEER} names no program: build tests/group_processes/go_peer"

Command = tuple[str | Path, ...]


@dataclass(frozen=True)
class Stranger:
    """An implementation. ``worker`` takes a task, ``verbs`` the servers, as their last argument."""

    name: str
    worker: Command
    verbs: Command

    def forgive(self, verdict: Verdict, kind: str) -> int:
        """Take out what members of Go do whenever an elastic group's members change, and return how often.

        Among themselves they do it, too. They do not wait for their handler that runs, and delete the
        consumer, so that its message is given to the next owner beside them. Their ack goes to the consumer
        made anew under the same name.
        """

        def is_their_own(pair: tuple[Handling, Handling]) -> bool:
            return pair[0].worker.startswith("peer-") and pair[0].sequence == pair[1].sequence

        count = 0
        if (self.name, kind) == ("go", "elastic"):
            for found in (verdict.overlapping, verdict.acked_before):
                own = [pair for pair in found if is_their_own(pair)]
                found[:] = [pair for pair in found if pair not in own]
                count += len(own)
        return count


def natsio() -> Stranger:
    """natsio-pcgroups, in a Python that is new enough; skips where there can be none."""
    start = (newer_python(), "-W", "error", "-m")
    return Stranger(
        "natsio",
        (*start, "group_processes.peer_worker"),
        (*start, "group_processes.peer_verbs"),
    )


def go() -> Stranger:
    """The Go implementation, in the program that the environment names; skips where it names none."""
    program = os.environ.get(GO_PEER)
    if not program:
        pytest.skip(MISSING_GO)
    path = Path(program).resolve()
    assert os.access(path, os.X_OK), f"{GO_PEER} is {program!r}, which is no program"
    return Stranger("go", (path, "worker"), (path, "verbs"))


STRANGERS = {"natsio": natsio, "go": go}


def is_wanted(name: str) -> bool:
    """Whether tests are played with a stranger. With the Go one only where somebody has built it: what it
    stores and asks is compared everywhere, by its transcript."""
    return name != "go" or GO_PEER in os.environ
