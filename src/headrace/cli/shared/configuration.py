"""Configurations of streams and consumers: out of a file, changed, compared."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from ...api.base import D, Document, DocumentError, from_wire, read_json, to_wire
from .errors import Failure
from .output import Table


def key_values(given: tuple[str, ...]) -> dict[str, str]:
    """``KEY=VALUE`` of the command line. Raises Failure."""
    found = {}
    for each in given:
        key, equals, value = each.partition("=")
        if not equals or not key:
            raise Failure(f"--metadata {each!r}: accepted is KEY=VALUE")
        found[key] = value
    return found


def metadata_text(metadata: Mapping[str, str]) -> str:
    """What the owner has noted; what servers note by themselves (``_nats.…``) is left out."""
    own = {key: value for key, value in metadata.items() if not key.startswith("_nats.")}
    return ", ".join(f"{key}={value}" for key, value in own.items())


def config_file(path: Path, kind: type[D]) -> D:
    """A configuration out of a file in JSON: by itself, or as the ``config`` of what info prints.

    Raises Failure: it cannot be read, or has a field that is not known.
    """
    try:
        document = read_json(path.read_bytes())
        if isinstance(document, dict) and isinstance(document.get("config"), dict):
            document = document["config"]
        if not isinstance(document, dict):
            raise DocumentError("it is not a JSON object")
        return from_wire(document, kind, strict=True)
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}") from None
    except DocumentError as error:
        raise Failure(f"{path}: {error}") from None


def replaced(config: D, changes: Mapping[str, Any]) -> D:
    """The configuration with these changes."""
    return msgspec.structs.replace(config, **changes)


def differences(before: Document, after: Document) -> Table:
    """The fields in which two configurations differ, with both values."""
    old, new = to_wire(before), to_wire(after)
    table = Table(("SETTING", "NOW", "THEN"))
    for name in before.__struct_fields__:
        if getattr(before, name) != getattr(after, name):
            values = [
                shown(getattr(each, name), wire.get(name))
                for each, wire in ((before, old), (after, new))
            ]
            table.add(name, *values)
    return table


def shown(value: Any, wire: Any = None) -> str:
    """A setting's value for people; ``wire`` is how it looks there, for what has no better form."""
    if isinstance(value, tuple) and all(isinstance(each, str) for each in value):
        return ", ".join(value)
    if isinstance(value, Document | tuple | dict):
        return str(value if wire is None else wire)
    return "yes" if value is True else "no" if value is False else str(value)
