"""What is said of a directory that is no backup, whoever has written it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace import ConfigurationError, read_backup

ABOUT = json.dumps({"config": {"name": "S"}, "state": {"messages": 0}}).encode()


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def writes(body: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(body)


SPOILT: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "a pipe instead of the document": ("backup.json", pipe, "no regular file"),
    "a pipe instead of the messages": ("stream.tar.s2", pipe, "no regular file"),
    "a device": ("backup.json", device, "no regular file"),
    "nothing": ("backup.json", Path.unlink, "no backup in"),
    "a document nested without end": ("backup.json", writes(b'{"a":' * 100_000), "max depth"),
    "a list nested without end": ("backup.json", writes(b"[" * 100_000), "max depth"),
    "a list": ("backup.json", writes(b"[1]"), "not that of a backup"),
    "a configuration that is a list": (
        "backup.json",
        writes(b'{"config":[],"state":{}}'),
        "not that of a backup",
    ),
    "a document without end": ("backup.json", writes(b" " * (9 << 20)), "larger than"),
    "what is no text": ("backup.json", writes(b"\xff\xfe"), "not that of a backup"),
}


@pytest.mark.parametrize("what", SPOILT)
def test_a_directory_that_is_no_backup_is_refused_at_once(what: str, tmp_path: Path) -> None:
    (tmp_path / "backup.json").write_bytes(ABOUT)
    (tmp_path / "stream.tar.s2").write_bytes(b"")
    assert read_backup(tmp_path).config.name == "S"
    file, spoil, said = SPOILT[what]
    spoil(tmp_path / file)
    with pytest.raises(ConfigurationError, match=said):
        read_backup(tmp_path)
