"""NATS's signed tokens: JSON between dots, signed with NKEYs by operators and accounts.

    base64url({"typ":"JWT","alg":"ed25519-nkey"}) . base64url(claims) . base64url(signature of both)

A token says who signed it (``iss``), about whom it speaks (``sub``), when it was made and ends
(``iat``, ``exp``, seconds), and its content under ``nats``. Version 2 of the claims is read, and version 1
(``"alg":"ed25519"``), where the signature is of the claims alone and ``type`` stands beside ``nats``.

What may stand in a token, and of which type: a text for a switch is no switch. A field of the wrong type
is refused, wherever it stands and whether we read it or not: who signed it meant something by it. Fields
nobody knows are ignored, as tokens are newer than servers; ``null`` is as nothing.

The contents of account and user tokens become accounts, permissions and limits of ours.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, Literal

import msgspec

from ....errors import ConfigurationError, InvalidSubjectError
from ....subjects import SubjectFilter, is_literal
from ..options import AccountOptions, Export, Import, JetStreamLimits
from ..peer import Peer
from .authentication import ACCOUNT, OPERATOR, USER, public_key
from .permissions import Permissions, QueueRule, ResponsePermission, read_rules

Int = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Texts = tuple[str, ...]
TOKEN_BYTES_MAX: Final = 1 << 20
_ALGORITHM: Final = "ed25519-nkey"
_ALGORITHM_1: Final = "ed25519"
_VERSION: Final = 2
_KEY_KINDS: Final = {"operator": OPERATOR, "account": ACCOUNT, "user": USER}
_TRANSPORTS = {"nats": "STANDARD", "websocket": "WEBSOCKET"}
_GRANTS = (
    *("pub", "sub", "resp", "src", "times", "times_location", "subs", "data", "payload"),
    *("bearer_token", "proxy_required", "allowed_connection_types"),
)


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


Verify = Callable[[bytes, bytes, bytes], bool]
"""``verify(public key, signature, data)``"""


class Claims(msgspec.Struct, frozen=True, kw_only=True):
    """What a token says; ``nats`` is its content, by NATS's own names."""

    iss: str
    sub: str
    jti: str | None = ""
    aud: str | None = ""
    iat: int = 0
    exp: int = 0
    nbf: int = 0
    name: str | None = ""
    type: str = ""
    """Of version 1; later ones say it in ``nats``."""
    nats: dict[str, Any] = {}

    @property
    def kind(self) -> str:
        return str(self.nats.get("type", ""))

    def check_time(self, now_s: float) -> None:
        """Raise TokenError outside the time it holds for."""
        if self.exp and self.exp <= now_s:
            raise TokenError("it has expired")
        if self.nbf and self.nbf > now_s:
            raise TokenError("it does not hold yet")


class _Header(msgspec.Struct, frozen=True):
    typ: str = ""
    alg: str = ""


def decode_token(token: str, kind: str, verify: Verify) -> Claims:
    """The claims of a token of this kind, signed by the key it names. Raises TokenError.

    Whether that key may sign it is for the caller to say.
    """

    if len(token) > TOKEN_BYTES_MAX:
        raise TokenError("it is longer than any token")
    parts = token.strip().split(".")
    if len(parts) != 3:
        raise TokenError("it does not have three parts")
    try:
        header = msgspec.json.decode(_decode(parts[0]), type=_Header)
        claims = msgspec.json.decode(_decode(parts[1]), type=Claims)
        signature = _decode(parts[2])
    except msgspec.ValidationError as error:
        raise TokenError(f"a field is not of its type: {error}") from None
    except (msgspec.DecodeError, binascii.Error, ValueError, RecursionError):
        raise TokenError("it is not made of base64 and JSON") from None
    signed = f"{parts[0]}.{parts[1]}"
    if header.alg == _ALGORITHM_1:
        signed, claims = parts[1], _of_version_1(claims)
    elif header.alg != _ALGORITHM:
        raise TokenError(f"its algorithm is not {_ALGORITHM}")
    claims = msgspec.structs.replace(claims, nats=check_content(claims.nats))
    if claims.kind != kind or claims.nats.get("version") != _VERSION:
        raise TokenError(f"it is not about {kind}s, or not of version {_VERSION}")
    signer = "A" if kind == "user" else "O"
    try:
        public_key(claims.sub, _KEY_KINDS[kind])
        key = public_key(claims.iss, signer)
    except ConfigurationError as error:
        raise TokenError(str(error)) from None
    if not verify(key, signature, signed.encode()):
        raise TokenError("its signature is wrong")
    return claims


def _of_version_1(claims: Claims) -> Claims:
    """Claims of version 1 in the words of version 2."""
    content = {**claims.nats, "type": claims.type, "version": _VERSION}
    if isinstance(content.get("src"), str):
        content["src"] = [network.strip() for network in content["src"].split(",") if network]
    return msgspec.structs.replace(claims, nats=content)


def _decode(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)


def account_options(claims: Claims) -> AccountOptions:
    """An account as its token describes it. Raises TokenError for what is not supported."""
    content = claims.nats
    if content.get("mappings"):
        raise TokenError("mappings of subjects are not supported")
    if (content.get("authorization") or {}).get("auth_users"):
        raise TokenError("authorization callouts are not supported")
    limits = content.get("limits") or {}
    _check_links(content, limits)
    return AccountOptions(
        name=claims.sub,
        jetstream=_jetstream(limits),
        exports=tuple(_export(item) for item in content.get("exports") or ()),
        imports=tuple(_import(item) for item in content.get("imports") or ()),
        connections_max=_limit(limits.get("conn", -1)),
        subscriptions_max=_limit(limits.get("subs", -1)),
        payload_max=_limit(limits.get("payload", -1)),
    )


def _check_links(content: Mapping[str, Any], limits: Mapping[str, Any]) -> None:
    """Raise TokenError for more exports and imports than the operator allows the account."""
    exports = content.get("exports") or ()
    most = _limit(limits.get("exports", -1))
    if 0 <= most < len(exports) or 0 <= _limit(limits.get("imports", -1)) < len(
        content.get("imports") or ()
    ):
        raise TokenError("the account has more exports or imports than its operator allows")
    if most >= 0 and not limits.get("wildcards", False):
        for subject in [str(item.get("subject", "")) for item in exports]:
            if not is_literal(subject.encode()):
                raise TokenError(f"the operator allows no export with a wildcard, as {subject!r}")


def _jetstream(limits: Mapping[str, Any]) -> JetStreamLimits | None:
    """Limits by tiers, or else of the whole account. Raises TokenError."""
    tiers = limits.get("tiered_limits")
    if not tiers:
        used = limits.get("mem_storage", 0) or limits.get("disk_storage", 0)
        return _limits(limits) if used else None
    if not isinstance(tiers, Mapping) or not all(isinstance(t, Mapping) for t in tiers.values()):
        raise TokenError("tiered_limits are not limits by tier")
    return JetStreamLimits(tiers=tuple((str(name), _limits(of)) for name, of in tiers.items()))


def _limits(limits: Mapping[str, Any]) -> JetStreamLimits:
    return JetStreamLimits(
        max_memory=_limit(limits.get("mem_storage", 0)),
        max_storage=_limit(limits.get("disk_storage", 0)),
        max_streams=_limit(limits.get("streams", 0) or -1),
        max_consumers=_limit(limits.get("consumer", 0) or -1),
        max_ack_pending=_limit(limits.get("max_ack_pending", 0) or -1),
        max_stream_memory=_limit(limits.get("mem_max_stream_bytes", 0) or -1),
        max_stream_storage=_limit(limits.get("disk_max_stream_bytes", 0) or -1),
        max_bytes_required=bool(limits.get("max_bytes_required", False)),
    )


def _limit(value: object) -> int:
    """A limit, -1 for none. Raises TokenError for anything but a number."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TokenError("a limit is not a whole number")
    return max(value, -1)


def _kind(item: Mapping[str, Any]) -> Literal["service", "stream"]:
    kind = item.get("type")
    if kind == "service":
        return "service"
    if kind == "stream":
        return "stream"
    raise TokenError("an export or import is neither stream nor service")


def _export(item: Mapping[str, Any]) -> Export:
    if item.get("token_req"):
        raise TokenError("exports that need activation tokens are not supported")
    if item.get("account_token_position"):
        raise TokenError("exports with the importer's account in the subject are not supported")
    answers = str(item.get("response_type") or "Singleton")
    subject = str(item.get("subject", "")).encode()
    return Export(kind=_kind(item), subject=subject, many_answers=answers != "Singleton")


def _import(item: Mapping[str, Any]) -> Import:
    kind = _kind(item)
    if item.get("token"):
        raise TokenError("imports with activation tokens are not supported")
    subject, to = str(item.get("subject", "")), str(item.get("to") or "")
    local = str(item.get("local_subject") or "")
    if to and not local:  # the older field: a prefix, or what the exporter calls it
        local, subject = (f"{to}.{subject}", subject) if kind == "stream" else (subject, to)
    return Import(
        kind=kind,
        account=str(item.get("account", "")),
        subject=subject.encode(),
        local=(local or subject).encode(),
        share=item.get("share", False),
    )


def permissions_of(content: Mapping[str, Any]) -> Permissions | None:
    """What ``pub``, ``sub`` and ``resp`` grant; None: everything. Raises TokenError."""
    publish, subscribe = content.get("pub") or {}, content.get("sub") or {}
    answers = content.get("resp")
    rules = [
        _rules(rules.get(verdict) or ())
        for rules in (publish, subscribe)
        for verdict in ("allow", "deny")
    ]
    if answers is None and not any(subjects or queues for subjects, queues in rules):
        return None
    (publish_allow, off), (publish_deny, off_too), allowed, denied = rules
    if off or off_too:
        raise TokenError("a queue group in the permission to publish: it is for subscriptions")
    responses = None
    if answers is not None:
        most, ttl_ns = _limit(answers.get("max", 0)), _limit(answers.get("ttl", 0))
        responses = ResponsePermission(most if most > 0 else 1, ttl_ns or 120_000_000_000)
        if publish_allow is None:
            publish_deny = SubjectFilter([b">"])
    return Permissions(
        publish_allow,
        publish_deny,
        allowed[0],
        denied[0],
        responses,
        queues_allow=allowed[1],
        queues_deny=denied[1],
    )


def _rules(entries: Any) -> tuple[SubjectFilter | None, tuple[QueueRule, ...]]:
    if any("{{" in str(entry) for entry in entries):
        raise TokenError("templates in permissions are not supported")
    try:
        return read_rules(map(str, entries))
    except InvalidSubjectError as error:
        raise TokenError(f"a permission is no subject: {error}") from None


def check_grants_nothing(content: Mapping[str, Any]) -> None:
    """Raise TokenError when a user of a scope, which grants all it may, has a say of its own in that."""
    own = [name for name in _GRANTS if content.get(name) not in (None, {}, 0, False, "")]
    own += [name for name in ("resp", "src") if name in content and name not in own]
    if own:
        raise TokenError(f"{own[0]} in the token of a user whose key has a scope")


def check_origin(content: Mapping[str, Any], peer: Peer) -> None:
    """Raise TokenError when the user may not come from there, or in this way."""
    if content.get("proxy_required"):
        raise TokenError("this user may come through a proxy only, and none is trusted")
    if content.get("times"):
        raise TokenError("times of the day are not supported")
    transports = content.get("allowed_connection_types")
    if transports and _TRANSPORTS[peer.transport] not in [str(t).upper() for t in transports]:
        raise TokenError("this user may not come this way")
    networks = content.get("src")
    if isinstance(networks, str):
        networks = [network.strip() for network in networks.split(",") if network.strip()]
    if networks:
        try:
            host = ipaddress.ip_address(peer.host)
            if not all("/" in str(network) for network in networks):
                raise TokenError("an address in src has no length of its prefix")
            if not any(host in ipaddress.ip_network(str(net), strict=False) for net in networks):
                raise TokenError("this user may not come from there")
        except ValueError as error:
            raise TokenError(str(error)) from None
