"""The file of settings: read, and what is wrong with it told with its line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from types import UnionType
from typing import Any, Final, TypeVar, Union, get_args, get_origin

import msgspec

from ...documents import DocumentError, parse_toml
from ...errors import ConfigurationError
from ...toml_lines import Path as Keys
from ...toml_lines import find_line, find_lines

__all__ = ["Document", "keys_of"]

T = TypeVar("T")

_AT: Final = re.compile(r"^(.*) - at `\$([^`]*)`$", re.DOTALL)
_NAMED: Final = re.compile(r"^([\w-]+(?:\[\d+\]|\.[\w-]+)*): ")
_PART: Final = re.compile(r"\[(\d+)\]|\[\.\.\.\]|\.?([\w-]+)")


class Document:
    """A TOML file's tree, and where each key of it stands. None: no file, an empty tree.

    Raises ConfigurationError: the file cannot be read, or is no TOML.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.tree: dict[str, Any] = {}
        self._lines: dict[Keys, int] = {}
        if path is None:
            return
        try:
            text = path.read_text("utf-8")
            self.tree = parse_toml(text)
        except OSError as error:
            raise ConfigurationError(f"{path}: {error.strerror}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, DocumentError) as error:
            raise ConfigurationError(f"{path}: {error}") from None
        self._lines = find_lines(text)

    def converted(self, kind: type[T], overrides: Mapping[str, Any]) -> T:
        """The tree as a struct, ``overrides`` in it. Raises ConfigurationError with the line."""
        self.check_keys(kind)
        try:
            return msgspec.convert({**self.tree, **overrides}, kind)
        except msgspec.ValidationError as error:
            found = _AT.match(str(error))
            said, where = (found[1], found[2].lstrip(".")) if found else (str(error), "")
            name = f"{where}: " if where else ""
            raise ConfigurationError(f"{self._place(where, overrides)}: {name}{said}") from None

    def check_keys(self, kind: Any, *front: str) -> None:
        """Raise ConfigurationError about a key that ``kind`` has not, at the keys ``front``."""
        tree: Any = self.tree
        for key in front:
            tree = tree.get(key, {}) if isinstance(tree, Mapping) else {}
        for keys, known in unknown_keys(tree, kind, front):
            near = get_close_matches(keys[-1], known, 1)
            meant = f"did you mean {near[0]!r}?" if near else f"accepted are {', '.join(known)}"
            where = f" in {'.'.join(keys[:-1])}" if keys[:-1] else ""
            line = find_line(self._lines, keys)
            raise ConfigurationError(
                f"{self._path}:{line}: no setting {keys[-1]!r}{where}; {meant}"
            )

    def placed(self, error: ConfigurationError, overrides: Mapping[str, Any]) -> ConfigurationError:
        """The error with file and line, if what it names stands in the file."""
        found = _NAMED.match(str(error))
        keys = _keys(found[1]) if found else ()
        if self._path is None or not keys or keys[0] in overrides or keys[0] not in self.tree:
            return error
        return ConfigurationError(f"{self._place(found[1] if found else '', overrides)}: {error}")

    def _place(self, where: str, overrides: Mapping[str, Any]) -> str:
        keys = _keys(where)
        if self._path is None or (keys and keys[0] in overrides):
            return "settings"
        line = find_line(self._lines, keys)
        return f"{self._path}:{line}" if line else str(self._path)


def _keys(where: str) -> Keys:
    """``feeds[0].batch`` as keys."""
    return tuple(number or name or "..." for number, name in _PART.findall(where))


def keys_of(kind: Any) -> list[str]:
    """The keys of a table that is read as ``kind``."""
    return [field.encode_name for field in msgspec.structs.fields(kind)]


def unknown_keys(tree: Any, kind: Any, path: Keys = ()) -> Iterator[tuple[Keys, list[str]]]:
    """The keys of a tree that its type has not, each with those that there are."""
    if get_origin(kind) in (Union, UnionType):
        structs = [each for each in get_args(kind) if each is not type(None)]
        kind = structs[0] if len(structs) == 1 else Any
    if get_origin(kind) is dict and isinstance(tree, Mapping):
        for key, value in tree.items():
            yield from unknown_keys(value, get_args(kind)[1], (*path, key))
    elif get_origin(kind) is list and isinstance(tree, list):
        for number, value in enumerate(tree):
            yield from unknown_keys(value, get_args(kind)[0], (*path, str(number)))
    elif isinstance(kind, type) and issubclass(kind, msgspec.Struct) and isinstance(tree, Mapping):
        types = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
        for key, value in tree.items():
            if key not in types:
                yield (*path, key), list(types)
            else:
                yield from unknown_keys(value, types[key], (*path, key))
