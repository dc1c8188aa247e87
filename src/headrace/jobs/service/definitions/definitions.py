"""Definitions of producers and channels: each has a name, a token, a version that a change names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, cast

from ... import ids, limits
from ...errors import JobsError, bad_request
from ...models import http_date
from ...store import Row, Tx

__all__ = [
    "Change",
    "Definition",
    "Precondition",
    "definition_of",
    "next_version",
    "put_definition",
]

_SECOND_US: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Precondition:
    """The version that the caller believes to be current: a ``Last-Modified`` or an ``ETag``."""

    unmodified_since: str | None = None
    etag: str | None = None

    def check(self, updated_us: int) -> None:
        """Refuse a change that names no version (400), or another one (412)."""
        if self.etag is not None:
            if self.etag.strip('"') == str(updated_us):
                return
            raise JobsError(
                412, "changed_meanwhile", "the definition was changed meanwhile", "If-Match"
            )
        if self.unmodified_since is None:
            raise bad_request(
                "precondition_missing",
                "changing what exists needs `If-Unmodified-Since` with its Last-Modified "
                "(or `If-Match` with its ETag)",
                "If-Unmodified-Since",
            )
        if self.unmodified_since != http_date(updated_us):
            raise JobsError(
                412,
                "changed_meanwhile",
                "the definition was changed meanwhile",
                "If-Unmodified-Since",
            )


@dataclass(frozen=True, slots=True)
class Change:
    """The fields of a PUT; ``None`` keeps the stored value (or takes the default for a new definition)."""

    name: str | None = None
    token: str | None = None

    def check(self) -> None:
        if self.name is not None:
            ids.check_text(self.name, "name", limits.NAME_CHARS_MAX)
        if self.token is not None:
            ids.check_token(self.token, "token")


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A producer or a channel. ``token`` is present only if this request set or created it."""

    seq: int
    public_id: str
    name: str
    updated_us: int
    token: str | None = None
    draining: bool = False


def put_definition(
    tx: Tx, what: str, public_id: str, change: Change, precondition: Precondition, now: int
) -> Definition:
    column = f"{what}_id"
    ids.check_id(public_id, f"{what}Id")
    change.check()
    row = tx.one(f"lock_{what}", **{column: public_id})
    if row is None:
        token = change.token or ids.new_token()
        name = change.name or public_id
        made = tx.one(
            f"insert_{what}",
            **{column: public_id},
            name=name,
            token_hash=ids.hash_token(token),
            now=now,
        )
        if made is not None:
            return Definition(
                seq=made["seq"], public_id=public_id, name=name, updated_us=now, token=token
            )
        # Another process created it between the two statements.
        row = cast(Row, tx.one(f"lock_{what}", **{column: public_id}))
    precondition.check(row["updated_us"])
    name = change.name or row["name"]
    token_hash = ids.hash_token(change.token) if change.token else row["token_hash"]
    updated = next_version(row["updated_us"], now)
    tx.run(f"update_{what}", seq=row["seq"], name=name, token_hash=token_hash, updated=updated)
    return Definition(
        seq=row["seq"], public_id=public_id, name=name, updated_us=updated, token=change.token
    )


def definition_of(row: Row, column: str) -> Definition:
    values: dict[str, Any] = {
        "seq": row["seq"],
        "name": row["name"],
        "updated_us": row["updated_us"],
    }
    return Definition(public_id=row[column], **values)


def next_version(updated_us: int, now: int) -> int:
    """A time in a later *second* than the last, so that every version has its own HTTP date."""
    return max(now, (updated_us // _SECOND_US + 1) * _SECOND_US)
