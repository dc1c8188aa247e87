"""The calls about API keys and the audit log. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from .calls import Call, ServiceAnswer, as_form, as_json, mapping, path_of

KEYS: Final = "/v2/keys"


@dataclass(frozen=True, slots=True)
class ListPage:
    """A page of a list, and the path of the next page, if there is one."""

    items: list[dict[str, Any]]
    next: str | None


def create_key(
    name: str, scopes: Sequence[str], channels: Sequence[str], expires_in_s: float | None
) -> Call[dict[str, Any]]:
    body = {
        "name": name,
        "scopes": list(scopes),
        "channels": list(channels),
        "expires_in_seconds": expires_in_s,
    }
    return Call("POST", KEYS, mapping, content=as_json(body))


def keys_page(path: str) -> Call[ListPage]:
    return Call("GET", path, lambda answer: _page(answer, "keys"))


def revoke_key(key: str) -> Call[None]:
    return Call("DELETE", path_of("v2", "key", key), lambda answer: None)


def audit_path(key: str | None, channel: str | None) -> str:
    given = {name: value for name, value in (("key", key), ("channel", channel)) if value}
    return "/v2/audit" + (f"?{as_form(given)}" if given else "")


def audit_page(path: str) -> Call[ListPage]:
    return Call("GET", path, lambda answer: _page(answer, "entries"))


def _page(answer: ServiceAnswer, name: str) -> ListPage:
    page = mapping(answer)
    return ListPage(page[name], page["pages"].get("next"))
