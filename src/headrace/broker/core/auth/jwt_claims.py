"""The contents of account and user tokens as accounts, permissions and limits of ours."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any, Literal

from ....errors import InvalidSubjectError
from ....subjects import SubjectFilter, is_literal
from ..account_options import AccountOptions, Export, Import, JetStreamLimits
from ..peer import Peer
from .jwt import Claims
from .jwt_content import TokenError
from .permissions import Permissions, QueueRule, ResponsePermission, read_rules

_TRANSPORTS = {"nats": "STANDARD", "websocket": "WEBSOCKET"}


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


_GRANTS = (
    *("pub", "sub", "resp", "src", "times", "times_location", "subs", "data", "payload"),
    *("bearer_token", "proxy_required", "allowed_connection_types"),
)


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
