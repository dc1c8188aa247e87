"""Small files and names in a folder: of this machine, or wherever Spark reaches.

Checkpoints and results may lie below a URL (``s3a://…``, ``hdfs://…``). What has to be read and noted there
goes through Hadoop's file systems, which only a session of Spark has.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from ...files import SHARED, write_whole

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


class Folder(Protocol):
    """A folder, which need not exist."""

    @property
    def shown(self) -> str:
        """Its place, for people."""

    def names(self, below: str = "") -> list[str]:
        """What lies in it, or in a folder of it; none if there is no such folder."""

    def read(self, name: str) -> str | None:
        """A small text; None if there is none."""

    def write(self, name: str, text: str) -> None:
        """Write a small text; the folder is made."""


def is_local(place: str) -> bool:
    """Whether a place is a path of this machine, and no URL."""
    return _SCHEME.match(place) is None


def folder_of(place: str, spark: SparkSession | None = None) -> Folder | None:
    """The folder at a path or a URL; None for a URL where there is no session to reach it."""
    if is_local(place):
        return LocalFolder(Path(place))
    return HadoopFolder(spark, place) if spark is not None else None


class LocalFolder:
    """A folder of this machine."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def shown(self) -> str:
        return str(self._path)

    def names(self, below: str = "") -> list[str]:
        folder = self._path / below
        return [each.name for each in folder.iterdir()] if folder.is_dir() else []

    def read(self, name: str) -> str | None:
        file = self._path / name
        return file.read_text(encoding="utf-8") if file.is_file() else None

    def write(self, name: str, text: str) -> None:
        self._path.mkdir(parents=True, exist_ok=True)
        write_whole(self._path / name, text, SHARED)


class HadoopFolder:
    """A folder that Spark reaches by its URL."""

    def __init__(self, spark: SparkSession, url: str) -> None:
        jvm: Any = spark._jvm
        self._jvm = jvm
        self._path = jvm.org.apache.hadoop.fs.Path(url)
        session: Any = spark._jsparkSession
        self._files = self._path.getFileSystem(session.sessionState().newHadoopConf())

    @property
    def shown(self) -> str:
        return str(self._path.toString())

    def names(self, below: str = "") -> list[str]:
        folder = self._at(below) if below else self._path
        if not self._files.exists(folder):
            return []
        return [str(each.getPath().getName()) for each in self._files.listStatus(folder)]

    def read(self, name: str) -> str | None:
        file = self._at(name)
        if not self._files.exists(file):
            return None
        opened = self._files.open(file)
        try:
            return bytes(opened.readAllBytes()).decode("utf-8")
        finally:
            opened.close()

    def write(self, name: str, text: str) -> None:
        unfinished = self._at(f".{name}.new")
        opened = self._files.create(unfinished, True)
        opened.write(text.encode())
        opened.close()
        file = self._at(name)
        if self._files.exists(file):
            self._files.delete(file, False)
        self._files.rename(unfinished, file)

    def _at(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._path, name)
