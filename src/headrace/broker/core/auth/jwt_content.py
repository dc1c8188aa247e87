"""What may stand in a token, and of which type: a text for a switch is no switch.

A field of the wrong type is refused, wherever it stands and whether we read it or not: who signed it meant
something by it. Fields nobody knows are ignored, as tokens are newer than servers; ``null`` is as nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec

Int = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Texts = tuple[str, ...]


class _Struct(msgspec.Struct, frozen=True, kw_only=True):
    pass


class _Rules(_Struct, frozen=True):
    allow: Texts = ()
    deny: Texts = ()


class _Answers(_Struct, frozen=True):
    max: Int = 0
    ttl: Int = 0


class _Times(_Struct, frozen=True):
    start: str = ""
    end: str = ""


class _Permissions(_Struct, frozen=True):
    pub: _Rules = _Rules()
    sub: _Rules = _Rules()
    resp: _Answers = _Answers()


class _Grants(_Permissions, frozen=True):
    """Of a user, and of the template of a signing key."""

    subs: Int = 0
    data: Int = 0
    payload: Int = 0
    max: Int = 0
    src: str | Texts = ()
    times: tuple[_Times, ...] = ()
    times_location: str = ""
    bearer_token: bool = False
    proxy_required: bool = False
    allowed_connection_types: Texts = ()


class _General(_Struct, frozen=True):
    type: str = ""
    version: Int = 0
    tags: Texts = ()
    description: str = ""
    info_url: str = ""


class _User(_Grants, frozen=True):
    """Beside what stands in every token."""

    issuer_account: str = ""


class _StreamLimits(_Struct, frozen=True):
    mem_storage: Int = 0
    disk_storage: Int = 0
    streams: Int = 0
    consumer: Int = 0
    max_ack_pending: Int = 0
    mem_max_stream_bytes: Int = 0
    disk_max_stream_bytes: Int = 0
    max_bytes_required: bool = False


class _Limits(_StreamLimits, frozen=True):
    subs: Int = 0
    data: Int = 0
    payload: Int = 0
    imports: Int = 0
    exports: Int = 0
    conn: Int = 0
    leaf: Int = 0
    wildcards: bool = False
    disallow_bearer: bool = False
    tiered_limits: dict[str, _StreamLimits] = {}


class _Latency(_Struct, frozen=True):
    sampling: Int | str = 0
    results: str = ""


class _Link(_Struct, frozen=True):
    name: str = ""
    subject: str = ""
    type: str = ""
    description: str = ""
    info_url: str = ""
    allow_trace: bool = False


class _Export(_Link, frozen=True):
    token_req: bool = False
    revocations: dict[str, Int] = {}
    response_type: str = ""
    response_threshold: Int = 0
    service_latency: _Latency = _Latency()
    account_token_position: Int = 0
    advertise: bool = False


class _Import(_Link, frozen=True):
    account: str = ""
    token: str = ""
    to: str = ""
    local_subject: str = ""
    share: bool = False


class _Scope(_Struct, frozen=True):
    kind: str = ""
    key: str = ""
    role: str = ""
    description: str = ""
    template: _Grants = _Grants()


class _Weighted(_Struct, frozen=True):
    subject: str = ""
    weight: Int = 0
    cluster: str = ""


class _Callout(_Struct, frozen=True):
    auth_users: Texts = ()
    allowed_accounts: Texts = ()
    xkey: str = ""


class _Trace(_Struct, frozen=True):
    dest: str = ""
    sampling: Int = 0


class _Account(_General, frozen=True):
    limits: _Limits = _Limits()
    exports: tuple[_Export, ...] = ()
    imports: tuple[_Import, ...] = ()
    signing_keys: tuple[str | _Scope, ...] = ()
    revocations: dict[str, Int] = {}
    default_permissions: _Permissions = _Permissions()
    mappings: dict[str, tuple[_Weighted, ...]] = {}
    authorization: _Callout = _Callout()
    trace: _Trace = _Trace()
    cluster_traffic: str = ""


class _Operator(_General, frozen=True):
    signing_keys: Texts = ()
    account_server_url: str = ""
    operator_service_urls: Texts = ()
    system_account: str = ""
    assert_server_version: str = ""
    strict_signing_key_usage: bool = False


_KINDS: Final[Mapping[str, tuple[type[_Struct], ...]]] = {
    "user": (_General, _User),
    "account": (_Account,),
    "operator": (_Operator,),
}


def check_content(content: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a token without its nulls. Raises TokenError for a field of the wrong type."""
    found: dict[str, Any] = _without_nulls(content)
    kind = found.get("type")
    shapes = _KINDS.get(kind, (_General,)) if isinstance(kind, str) else (_General,)
    try:
        for shape in shapes:
            msgspec.convert(found, shape, strict=True)
    except msgspec.ValidationError as error:
        raise TokenError(f"a field is not of its type: {error}") from None
    return found


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [_without_nulls(inner) for inner in value]
    return value


class TokenError(ValueError):
    """A token is not what it has to be. The text says why, and shows nothing of it."""
