"""What an Avro schema refers to, put into it where it is first named. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ..documents import DocumentError, read_json
from .errors import NoSchemaError

_NAMED = ("record", "error", "enum", "fixed")


def inlined(text: str, referred: Sequence[str]) -> bytes:
    """The schema ``text`` as one document, with the definitions of ``referred`` in it.

    ``referred`` are schemas of named types; they may name each other. Raises NoSchemaError.
    """
    definitions: dict[str, Any] = {}
    for one in referred:
        _collect(_read(one), "", definitions)
    return json.dumps(_Inliner(definitions).put(_read(text), "")).encode()


def _read(text: str) -> Any:
    try:
        return read_json(text)
    except DocumentError as error:
        raise NoSchemaError(f"a schema of the registry is no JSON: {error}") from None


def _collect(schema: Any, space: str, into: dict[str, Any]) -> None:
    """The named types that a schema of the registry defines at its top: itself, or the parts of a union."""
    for one in schema if isinstance(schema, list) else [schema]:
        if isinstance(one, dict) and one.get("type") in _NAMED:
            into.setdefault(_full_name(one, space), one)


def _full_name(schema: dict[str, Any], space: str) -> str:
    name = str(schema.get("name", ""))
    if "." in name:
        return name
    own = str(schema.get("namespace", space))
    return f"{own}.{name}" if own else name


class _Inliner:
    """Walks through a schema, and writes a definition where its name stands for the first time."""

    def __init__(self, definitions: dict[str, Any]) -> None:
        self._definitions = definitions
        self._done: set[str] = set()

    def put(self, schema: Any, space: str) -> Any:
        """The schema with what it names; ``space`` is the namespace that it stands in."""
        if isinstance(schema, str):
            return self._named(schema, space)
        if isinstance(schema, list):
            return [self.put(one, space) for one in schema]
        if not isinstance(schema, dict):
            return schema
        found = dict(schema)
        if schema.get("type") in _NAMED:
            full = _full_name(schema, space)
            self._done.add(full)
            space = full.rpartition(".")[0]
        elif "type" in schema:
            found["type"] = self.put(schema["type"], space)
        for inner in ("items", "values"):
            if inner in schema:
                found[inner] = self.put(schema[inner], space)
        fields = schema.get("fields")
        if isinstance(fields, list):
            found["fields"] = [
                {**one, "type": self.put(one["type"], space)}
                if isinstance(one, dict) and "type" in one
                else one
                for one in fields
            ]
        return found

    def _named(self, name: str, space: str) -> Any:
        full = f"{space}.{name}" if space and "." not in name else name
        for known in (full, name):
            if known in self._definitions and known not in self._done:
                definition = self._definitions[known]
                # Its namespace is said, so that the one around it is not taken.
                said = {**definition, "name": known.rpartition(".")[2]}
                return self.put({**said, "namespace": known.rpartition(".")[0]}, space)
        return name
