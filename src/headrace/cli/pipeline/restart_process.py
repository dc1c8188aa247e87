"""Runs the command once more in the place of this process, whose Java was lost.

Python objects all over the process, also those of users' modules, are handles of that Java. So nothing of it
is used again: number, output and parent stay, everything else is new.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, NoReturn

from ...pipeline.failures.supervising import VARIABLE, JavaLost

if TYPE_CHECKING:
    from collections.abc import Mapping


def begin_anew(lost: JavaLost, environment: Mapping[str, str]) -> NoReturn:
    """Begin it. ``environment``: as it was before a session added its own to it."""
    sys.stdout.flush()
    sys.stderr.flush()
    _bury_children()
    given = {**environment, VARIABLE: str(lost)}
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], given)  # noqa: S606


def _bury_children() -> None:
    """Those that have ended would stay in the list of processes: nobody asks for them any more."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
