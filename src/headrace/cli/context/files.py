"""The files: ``<configuration>/nats/context/<name>.json`` and ``<configuration>/nats/context.txt``.

What a file has and we do not know is kept. Files can be read by nobody else, as they hold passwords.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...documents import read_json
from ..shared.errors import Failure
from ..shared.private_files import write_private

if TYPE_CHECKING:
    import click


def complete_contexts(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:
    """Names of contexts that begin so, for the shell."""
    return [name for name in Contexts().names() if name.startswith(begun)]


class Contexts:
    """The contexts of a user.

    Args:
        environ: says where they are: ``XDG_CONFIG_HOME``, or ``HOME``.
    """

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        variables = os.environ if environ is None else environ
        base = variables.get("XDG_CONFIG_HOME", "")
        home = Path(variables.get("HOME", "") or Path.home())
        self._directory = (Path(base) if base else home / ".config") / "nats"
        self._chosen = variables.get("NATS_CONTEXT", "")

    def names(self) -> list[str]:
        """Of all there are."""
        return sorted(path.stem for path in (self._directory / "context").glob("*.json"))

    @property
    def selected(self) -> str:
        """The one that is used when none is named, or ""."""
        try:
            return self._chosen or (self._directory / "context.txt").read_text().strip()
        except OSError:
            return ""  # none was ever selected

    def select(self, name: str) -> None:
        """Use this one from now on; "" is none. Raises Failure."""
        if name:
            self.read(name)
        write_private(self._directory / "context.txt", name)

    def path(self, name: str) -> Path:
        """Its file. Raises Failure for what cannot be a name."""
        if not name or name in (".", "..") or any(c in name for c in "/\\\0"):
            raise Failure(f"{name!r} cannot be the name of a context: it is no file name")
        return self._directory / "context" / f"{name}.json"

    def read(self, name: str) -> dict[str, Any]:
        """What it says. Raises Failure if there is none, or it cannot be read."""
        path = self.path(name)
        try:
            found = read_json(path.read_bytes())
        except FileNotFoundError:
            raise self._missing(name) from None
        except (OSError, ValueError) as error:
            raise Failure(f"{path}: {error}") from None
        if not isinstance(found, dict):
            raise Failure(f"{path}: it is not a JSON object")
        return found

    def _missing(self, name: str) -> Failure:
        known = self.names()
        near = get_close_matches(name, known, 1)
        if near:
            return Failure(f"there is no context {name!r}; did you mean {near[0]!r}?")
        there = f"; there are: {', '.join(known)}" if known else ", nor any other"
        step = f"headrace context create {name} --server nats://HOST    creates it"
        return Failure(f"there is no context {name!r}{there}", step)

    def write(self, name: str, settings: Mapping[str, Any]) -> Path:
        """Keep this. Raises Failure."""
        path = self.path(name)
        write_private(path, json.dumps(settings, indent=2) + "\n")
        return path

    def remove(self, name: str) -> None:
        """Forget it; it is no longer selected then. Raises Failure."""
        self.read(name)
        try:
            self.path(name).unlink()
        except OSError as error:
            raise Failure(f"{self.path(name)}: {error.strerror}") from None
        if self.selected == name:
            self.select("")
