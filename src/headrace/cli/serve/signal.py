"""``-sl reload=PID``: send a signal to a running broker, as nats-server's flag does."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Final

from ...errors import ConfigurationError

_SIGNALS: Final = {
    "ldm": signal.SIGUSR2,
    "stop": signal.SIGKILL,
    "quit": signal.SIGINT,
    "term": signal.SIGTERM,
    "reopen": signal.SIGUSR1,
    "reload": signal.SIGHUP,
}


def send_signal(request: str) -> None:
    """Send the signal in ``<signal>=<pid>`` or ``<signal>=<file with the pid>``.

    Raises ConfigurationError for an unknown signal, and for a process that is not named or does not exist.
    """
    name, equals, target = request.partition("=")
    if name not in _SIGNALS:
        raise ConfigurationError(f"--signal: {name!r}; accepted are {', '.join(_SIGNALS)}")
    if not equals or not target:
        raise ConfigurationError(
            f"--signal: whom to tell is missing; accepted is {name}=<pid> or {name}=<pid file>"
        )
    pid = _pid(target)
    try:
        os.kill(pid, _SIGNALS[name])
    except OSError as error:
        raise ConfigurationError(f"--signal: process {pid}: {error.strerror}") from error


def _pid(target: str) -> int:
    text = target
    if not target.isdecimal():
        try:
            text = Path(target).read_text(encoding="ascii").strip()
        except OSError as error:
            raise ConfigurationError(f"--signal: {target}: {error.strerror}") from error
        except UnicodeDecodeError:
            text = ""
    if not text.isdecimal() or int(text) <= 1:
        raise ConfigurationError(f"--signal: {target}: no process id, nor a file that has one")
    return int(text)
