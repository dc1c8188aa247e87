"""The demo's directory: its layout, its ownership, and whether its parts match."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from .errors import DemoError
from .results import Results

_MARK: Final = ".headrace-demo"
_TASKS: Final = "tasks"
_OURS: Final = (
    "broker",
    "checkpoint",
    "legs",
    "state",
    "warehouse",
    "spark.log",
    "delays.png",
    _TASKS,
)


class Workspace:
    """One directory. ``open`` creates it; files that are not the demo's are never touched."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.broker = directory / "broker"
        self.checkpoint = directory / "checkpoint"
        self.picture = directory / "delays.png"
        self.log = directory / "spark.log"
        self.results = Results(directory)

    def open(self, *, reset: bool) -> None:
        """Create the directory, or check that it is the demo's own; with ``reset``, empty it.

        Raises:
            DemoError: the directory has other content.
        """
        directory = self.directory
        if directory.exists() and not directory.is_dir():
            raise DemoError(f"{directory} is a file; choose another place with --dir.")
        mark = directory / _MARK
        if directory.exists() and any(directory.iterdir()) and not mark.exists():
            raise DemoError(
                f"{directory} holds files that are not the demo's; choose an empty or new directory "
                "with --dir."
            )
        if reset:
            for name in _OURS:
                place = directory / name
                if place.is_dir():
                    shutil.rmtree(place)
                else:
                    place.unlink(missing_ok=True)
        directory.mkdir(parents=True, exist_ok=True)
        mark.write_text("Made by `headrace demo`; --reset removes what is in here.\n")

    def prepare_results(self) -> None:
        """Remove results whose checkpoint is gone: they would be counted twice."""
        if not self.checkpoint.exists():
            self.results.clear()
        self.results.prepare()

    def tasks(self, wanted: int) -> int:
        """How many tasks a batch has: as many as wanted by the run that began the checkpoint.

        A batch that runs again has to have its rows in the same tasks, also where there are other cores now.
        """
        place = self.directory / _TASKS
        if self.checkpoint.exists() and place.exists():
            return int(place.read_text())
        place.write_text(f"{wanted}\n")
        return wanted
