"""Keys by which two messages are the same to a publisher that wants one of them. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from ...documents import DocumentError, read_json
from .. import limits
from ..errors import JobsError, bad_request
from ..states import State
from .filters import SUBJECT
from .patterns import MISSING, parse_path, value_at

__all__ = ["Unique", "UniqueKey", "key_of"]

_PATH: Final = "payload:"
_WHOLE: Final = ("subject", "ordering_key", "content_type", "payload")


class Unique(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Properties by which a message is unique.

    Attributes:
        by: ``subject``, ``ordering_key``, ``content_type``, ``payload``, or ``payload:`` and a path into it.
        within: seconds since the first one; None: as long as that is kept.
        while_states: ``while`` in JSON: only while the first one has a job in one of these.
    """

    by: tuple[str, ...]
    within: float | None = None
    while_states: tuple[str, ...] | None = msgspec.field(default=None, name="while")


class UniqueKey(msgspec.Struct, frozen=True):
    """Key that is looked for: the hash of what has to be the same, and for how long."""

    digest: str
    within_us: int | None
    states: tuple[State, ...] | None


def key_of(
    wanted: Unique,
    field: str,
    *,
    payload: bytes,
    content_type: str,
    ordering_key: str | None,
    headers: Mapping[str, str],
) -> UniqueKey:
    """The key of a message. 400 for what cannot be asked for, and for a payload without JSON to look into."""
    if not 1 <= len(wanted.by) <= limits.UNIQUE_PARTS_MAX:
        raise bad_request(
            "invalid_unique", f"1 to {limits.UNIQUE_PARTS_MAX} parts are accepted", f"{field}.by"
        )
    if wanted.within is not None and not 0 < wanted.within <= limits.UNIQUE_S_MAX:
        raise bad_request(
            "invalid_unique",
            f"above 0, at most {limits.UNIQUE_S_MAX:g} seconds",
            f"{field}.within",
        )
    whole = {
        "subject": headers.get(SUBJECT),
        "ordering_key": ordering_key,
        "content_type": content_type,
        "payload": hashlib.sha256(payload).hexdigest(),
    }
    document: Any = MISSING
    parts = []
    for part in sorted(set(wanted.by)):
        if part in whole:
            parts.append([part, whole[part]])
            continue
        if not part.startswith(_PATH):
            raise bad_request(
                "invalid_unique",
                f"accepted are {', '.join(_WHOLE)}, and payload:$.name, not {part[:80]!r}",
                f"{field}.by",
            )
        path = parse_path(part.removeprefix(_PATH), f"{field}.by")
        if document is MISSING:
            document = _json(payload, field)
        found = value_at(document, path)
        parts.append([part, *([] if found is MISSING else [found])])
    text = json.dumps(parts, sort_keys=True, allow_nan=False)
    digest = hashlib.sha256(text.encode()).hexdigest()
    within_us = None if wanted.within is None else round(wanted.within * 1e6)
    return UniqueKey(digest, within_us, _states(wanted, field))


def _json(payload: bytes, field: str) -> Any:
    try:
        return read_json(payload)
    except DocumentError:
        raise JobsError(
            400, "invalid_unique", "the payload is not JSON, so it has no paths", f"{field}.by"
        ) from None


def _states(wanted: Unique, field: str) -> tuple[State, ...] | None:
    if wanted.while_states is None:
        return None
    unknown = set(wanted.while_states) - set(State.__members__)
    if unknown or not wanted.while_states:
        raise bad_request(
            "unknown_state",
            f"one or more of {', '.join(State.__members__)} are accepted",
            f"{field}.while",
        )
    return tuple(State[name] for name in wanted.while_states)
