"""Accounts, and JetStream's limits, as nats-server's files say them: the same tables in both formats."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from ...core.auth.authentication import User
from ...core.options import AccountOptions, AssetLimits, Export, Import, JetStreamLimits
from .fields import Fields, refuse
from .syntax import ConfigMap, ConfigValue
from .users import read_permissions, read_users

_SWITCHES: Final = {"enabled": True, "enable": True, "disabled": False, "disable": False}
_ANSWERS: Final = {
    "single": False, "singleton": False, "stream": True, "streamed": True, "chunk": True,
    "chunked": True,
}  # fmt: skip
_KNOWN_LIMITS: Final = (
    "max_ack_pending, max_request_batch, duplicate_window, batch and max_ha_assets"
)
_KNOWN_BATCH_LIMITS: Final = "max_inflight_per_stream, max_inflight_total, max_msgs and timeout"
_KNOWN: Final = "users, jetstream, exports, imports, default_permissions and limits"


class AccountSettings(NamedTuple):
    """Accounts, and the users that belong to them."""

    accounts: list[AccountOptions]
    users: list[User]


def read_accounts(value: ConfigValue) -> AccountSettings:
    """A map of accounts by name. Raises ConfigurationError with the place.

    Whether what one imports is exported by the other is checked where all of them are known.
    """
    if not isinstance(value.content, ConfigMap):
        refuse(value, "accounts", "not accepted; it must be a map of accounts by name, { A { … } }")
    accounts: list[AccountOptions] = []
    users: list[User] = []
    for name, entry in value.content.items():
        if not name or any(character.isspace() for character in name):
            refuse(entry, "accounts", f"{name!r} is not accepted; it must be a name without blanks")
        options, own = _account(name, entry)
        accounts.append(options)
        for user in own:
            if any(user.name == other.name for other in users):
                refuse(entry, f"accounts.{name}", f"the user {user.name!r} is listed twice")
        users += own
    return AccountSettings(accounts, users)


def _account(name: str, entry: ConfigValue) -> tuple[AccountOptions, list[User]]:
    fields = Fields(entry, f"accounts.{name}")
    granted = fields.take("default_permissions", "default_permission")
    default = None if granted is None else read_permissions(granted)
    listed = fields.take("users")
    users = [] if listed is None else read_users(listed, default, account=name)
    streams = fields.take("jetstream")
    exports, imports = fields.take("exports"), fields.take("imports")
    limits = fields.take("limits")
    connections, subscriptions, payload = _limits(limits, name)
    fields.no_more(f"not supported in an account; accepted are {_KNOWN}")
    options = AccountOptions(
        name=name,
        jetstream=None if streams is None else read_jetstream_limits(streams),
        exports=tuple(_export(item) for item in _items(exports, "exports")),
        imports=tuple(_import(item) for item in _items(imports, "imports")),
        connections_max=connections,
        subscriptions_max=subscriptions,
        payload_max=payload,
    )
    return options, users


def _limits(value: ConfigValue | None, name: str) -> tuple[int, int, int]:
    """The most connections of the account, and subscriptions and bytes of a message of each of them; -1: any
    number."""
    if value is None:
        return -1, -1, -1
    fields = Fields(value, f"accounts.{name}.limits")
    found = (
        fields.number("max_connections", "max_conn"),
        fields.number("max_subscriptions", "max_subs"),
        fields.number("max_payload", "max_pay"),
    )
    fields.no_more(
        "not supported in limits; accepted are max_connections, max_subscriptions and max_payload"
    )
    connections, subscriptions, payload = (-1 if number is None else number for number in found)
    return connections, subscriptions, payload


def read_jetstream_limits(value: ConfigValue) -> JetStreamLimits | None:
    """``enabled``, ``true`` or a map of limits; None where it is switched off."""
    if not isinstance(value.content, ConfigMap):
        wanted = value.content
        if isinstance(wanted, str):
            wanted = _SWITCHES.get(wanted.lower())
        if not isinstance(wanted, bool):
            refuse(value, "jetstream", "must be true, false, enabled, disabled or a map of limits")
        return JetStreamLimits() if wanted else None
    fields = Fields(value, "jetstream")
    enabled = fields.switch("enabled", "enable")
    required = fields.switch("max_bytes_required", "max_stream_bytes", "max_bytes")
    limits = JetStreamLimits(
        max_memory=_limit(fields, "max_mem", "max_memory", "mem", "memory"),
        max_storage=_limit(fields, "max_file", "max_store", "max_disk", "store", "disk"),
        max_streams=_limit(fields, "max_streams", "streams"),
        max_consumers=_limit(fields, "max_consumers", "consumers"),
        max_ack_pending=_limit(fields, "max_ack_pending"),
        max_stream_memory=_limit(fields, "mem_max_stream_bytes", "memory_max_stream_bytes"),
        max_stream_storage=_limit(fields, "disk_max_stream_bytes", "store_max_stream_bytes"),
        max_bytes_required=bool(required),
    )
    fields.no_more("no limit of an account's JetStream; see docs/configuration.md")
    return None if enabled is False else limits


def _limit(fields: Fields, *names: str) -> int:
    found = fields.number(*names)
    return -1 if found is None or found < 0 else found


def _items(value: ConfigValue | None, name: str) -> list[ConfigValue]:
    if value is None:
        return []
    if not isinstance(value.content, list):
        refuse(value, name, "not accepted; it must be a list of maps, [ { service: … } ]")
    return value.content


def _export(value: ConfigValue) -> Export:
    fields = Fields(value, "exports")
    stream, service = fields.text("stream"), fields.text("service")
    kind = _kind(value, "exports", stream is not None, service is not None)
    allowed = fields.take("accounts")
    answers = fields.take("response", "response_type")
    fields.take("threshold", "response_threshold")
    fields.no_more(
        "not supported in exports; accepted are stream or service, accounts and response"
    )
    many = False
    if answers is not None:
        word = answers.content.lower() if isinstance(answers.content, str) else ""
        if word not in _ANSWERS:
            refuse(answers, "response", "not accepted; it must be singleton, stream or chunked")
        many = _ANSWERS[word]
    names = None
    if allowed is not None:
        names = frozenset(_name(item, "accounts") for item in _items(allowed, "accounts"))
    subject = (stream or service or "").encode()
    return Export(kind=kind, subject=subject, accounts=names, many_answers=many)


def _import(value: ConfigValue) -> Import:
    fields = Fields(value, "imports")
    stream, service = fields.take("stream"), fields.take("service")
    kind = _kind(value, "imports", stream is not None, service is not None)
    source = stream if stream is not None else service
    if source is None:
        refuse(value, "imports", "each entry needs either stream or service")
    inner = Fields(source, kind)
    account, subject = inner.text("account"), inner.text("subject")
    prefix, to = fields.text("prefix"), fields.text("to")
    share = fields.switch("share")
    for key, unknown in (*inner.rest(), *fields.rest()):
        refuse(
            unknown,
            key,
            "not supported in imports; accepted are stream or service { account, subject }, "
            "to, and prefix for streams",
        )
    if account is None or subject is None:
        refuse(source, kind, "needs both account and subject")
    if prefix is not None and (to is not None or kind == "service"):
        refuse(value, "prefix", "is for streams, and instead of to")
    local = to or (f"{prefix}.{subject}" if prefix else subject)
    return Import(
        kind=kind,
        account=account,
        subject=subject.encode(),
        local=local.encode(),
        share=bool(share),
    )


def _kind(
    value: ConfigValue, name: str, is_stream: bool, is_service: bool
) -> Literal["service", "stream"]:
    if is_stream == is_service:
        refuse(value, name, "each entry needs either stream or service")
    return "stream" if is_stream else "service"


def _name(value: ConfigValue, name: str) -> str:
    if not isinstance(value.content, str) or not value.content:
        refuse(value, name, "not accepted; it must be a list of names")
    return value.content


class AssetSettings(NamedTuple):
    """The limits, and where one stands that means nothing to a single node."""

    limits: AssetLimits
    ignored: ConfigValue | None = None


def read_asset_limits(value: ConfigValue) -> AssetSettings:
    """A map of limits. Raises ConfigurationError with the place."""
    fields = Fields(value, "limits")
    ignored = fields.peek("max_ha_assets")
    fields.number("max_ha_assets")
    batch = fields.take("batch")
    batches = Fields(batch, "limits.batch") if batch is not None else None
    limits = AssetLimits(
        max_ack_pending=_asset_limit(fields, "max_ack_pending"),
        max_request_batch=_asset_limit(fields, "max_request_batch"),
        duplicate_window=fields.seconds("duplicate_window") or 0.0,
        batches_per_stream=_asset_limit(batches, "max_inflight_per_stream"),
        batches=_asset_limit(batches, "max_inflight_total"),
        batch_messages=_asset_limit(batches, "max_msgs"),
        batch_idle=(batches.seconds("timeout") if batches is not None else None) or 0.0,
    )
    fields.no_more(f"not a limit of JetStream; accepted are {_KNOWN_LIMITS}", "limits.")
    if batches is not None:
        batches.no_more(f"not a known limit; accepted are {_KNOWN_BATCH_LIMITS}", "limits.batch.")
    return AssetSettings(limits, ignored)


def _asset_limit(fields: Fields | None, name: str) -> int:
    """A number; what is not more than 0 means the default, as in nats-server."""
    found = fields.number(name) if fields is not None else None
    return max(found or 0, 0)
