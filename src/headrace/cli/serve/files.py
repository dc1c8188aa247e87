"""Files about a running broker for test harnesses and service managers: its ports, its process id."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from ...broker.server import Broker
from ...errors import ConfigurationError
from ...files import SHARED, write_whole
from .. import program_name


@contextmanager
def told_by_files(
    broker: Broker, ports_directory: str | None, pid_file: str | None
) -> Iterator[None]:
    """The files exist while the broker runs. Raises ConfigurationError if they cannot be written."""
    with ExitStack() as stack:
        for path in (_write_pid(pid_file), _write_ports(broker, ports_directory)):
            if path is not None:
                stack.callback(path.unlink, missing_ok=True)
        yield


def _write_pid(name: str | None) -> Path | None:
    return None if name is None else _write(Path(name), str(os.getpid()), "pid_file")


def _write_ports(broker: Broker, directory: str | None) -> Path | None:
    """``headrace_<pid>.ports``, for harnesses that let the server choose its ports.

    If the program is called ``nats-server``, the file has the name that such a harness expects.
    """
    if directory is None:
        return None
    import json  # most starts need it not

    document: dict[str, Any] = {"nats": [broker.client_url]}
    if broker.monitor_url is not None:
        document["monitoring"] = [broker.monitor_url]
    if broker.websocket_url is not None:
        document["websocket"] = [broker.websocket_url]
    path = Path(directory) / f"{program_name()}_{os.getpid()}.ports"
    return _write(path, json.dumps(document), "ports_file_dir")


def _write(path: Path, text: str, setting: str) -> Path:
    try:
        write_whole(path, text, SHARED)
    except OSError as error:
        raise ConfigurationError(f"{setting}: cannot write {path}: {error.strerror}") from error
    return path
