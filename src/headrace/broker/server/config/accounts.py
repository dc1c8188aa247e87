"""Accounts, users, operators and JetStream's limits, as the files say them.

The tables are nats-server's, the same in both formats: users and what they may do, operators or their
keys, and the accounts that these have signed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, NamedTuple

from ....errors import ConfigurationError, InvalidSubjectError
from ....subjects import SubjectFilter
from ...core.auth.authentication import OPERATOR, USER, User, check_secret, public_key
from ...core.auth.jwt_auth import TokenTrust
from ...core.auth.permissions import Permissions, QueueRule, ResponsePermission, read_rules
from ...core.options import AccountOptions, AssetLimits, Export, Import, JetStreamLimits
from .fields import Fields, refuse, seconds_of
from .syntax import ConfigMap, ConfigValue

RESPONSES_MAX_DEFAULT: Final = 1  # nats-server: DEFAULT_ALLOW_RESPONSE_MAX_MSGS
RESPONSES_EXPIRE_S_DEFAULT: Final = 120.0  # nats-server: DEFAULT_ALLOW_RESPONSE_EXPIRATION

_ALL: Final = SubjectFilter([b">"])
_TOKEN: Final = "eyJ"  # noqa: S105 - how every token starts: the base64 of {"
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


def read_users(
    value: ConfigValue, default: Permissions | None = None, *, account: str = ""
) -> list[User]:
    """A list of ``{user, password, permissions}`` or ``{nkey, permissions}``.

    ``default`` is for who has no permissions. A user without password comes without one.

    Raises ConfigurationError with the place.
    """
    if not isinstance(value.content, list) or not value.content:
        refuse(value, "users", "not accepted; it must be a list of maps with user and password")
    users: list[User] = []
    for entry in value.content:
        fields = Fields(entry, "users")
        name = fields.text("user", "username")
        password = read_secret(fields, "password", "pass", may_be_empty=True)
        nkey = fields.text("nkey")
        of_account = fields.text("account")
        granted = fields.take("permissions", "permission", "authorization")
        fields.no_more("not supported in users; accepted are user, password, nkey and permissions")
        if nkey is not None:
            _check_key(entry, nkey, alone=name is None and password is None)
            name = nkey
        elif name is None:
            refuse(entry, "users", "an entry needs a user and a password, or an nkey")
        if any(name == user.name for user in users):
            refuse(entry, "users", f"{name!r} is listed twice")
        permissions = read_permissions(granted) if granted else default
        users.append(User(name, password or "", permissions, of_account or account, nkey or ""))
    return users


def _check_key(entry: ConfigValue, nkey: str, *, alone: bool) -> None:
    if not alone:
        refuse(entry, "users", "an nkey stands alone: its user has no name and no password")
    try:
        public_key(nkey, USER)
    except ConfigurationError as error:
        raise ConfigurationError(f"{entry.place}: nkey: {error}") from None


def read_secret(fields: Fields, *names: str, may_be_empty: bool = False) -> str | None:
    """A password or token. Raises ConfigurationError with the place, never with the secret."""
    value = fields.take(*names)
    if value is None:
        return None
    if not isinstance(value.content, str) or not (value.content or may_be_empty):
        what = "a text" if may_be_empty else "a non-empty text"
        refuse(value, names[0], f"not accepted; it must be {what}, in quotes")
    try:
        check_secret(names[0], value.content)
    except ConfigurationError as error:
        raise ConfigurationError(f"{value.place}: {error}") from None
    return value.content


def read_permissions(value: ConfigValue) -> Permissions:
    """``{publish, subscribe, allow_responses}``. Raises ConfigurationError with the place."""
    fields = Fields(value, "permissions")
    publish = _rules(fields.take("publish", "pub", "import"), "publish")
    subscribe = _rules(fields.take("subscribe", "sub", "export"), "subscribe")
    responses = _responses(fields.take("allow_responses", "publish_allow_responses"))
    fields.no_more("no such permission; accepted are publish, subscribe and allow_responses")
    publish_deny = publish.deny
    if responses is not None and publish.allow is None:
        # nats-server: who may answer, and is granted nothing else, may only answer.
        publish_deny = _ALL
    return Permissions(
        publish.allow,
        publish_deny,
        subscribe.allow,
        subscribe.deny,
        responses,
        queues_allow=subscribe.queues_allow,
        queues_deny=subscribe.queues_deny,
    )


class _Rules(NamedTuple):
    """What one may do, and what not; ``None`` and no queue: everything, and nothing."""

    allow: SubjectFilter | None = None
    deny: SubjectFilter | None = None
    queues_allow: tuple[QueueRule, ...] = ()
    queues_deny: tuple[QueueRule, ...] = ()


def _rules(value: ConfigValue | None, name: str) -> _Rules:
    """What is allowed and denied; a bare list is what is allowed."""
    if value is None:
        return _Rules()
    if not isinstance(value.content, ConfigMap):
        subjects, queues = _entries(value, name)
        return _Rules(subjects, None, queues)
    fields = Fields(value, name)
    allow, deny = fields.take("allow"), fields.take("deny")
    fields.no_more(f"not known in {name}; accepted are allow and deny")
    allowed, queues_allowed = (None, ()) if allow is None else _entries(allow, f"{name}.allow")
    denied, queues_denied = (None, ()) if deny is None else _entries(deny, f"{name}.deny")
    return _Rules(allowed, denied, queues_allowed, queues_denied)


def _entries(value: ConfigValue, name: str) -> tuple[SubjectFilter | None, tuple[QueueRule, ...]]:
    entries = value.content if isinstance(value.content, list) else [value]
    if not entries:
        # For nats-server an empty list allows everything, which is not what it looks like.
        refuse(value, name, 'empty; leave it out to allow everything, or deny ">" to allow nothing')
    rules: list[str] = []
    for entry in entries:
        if not isinstance(entry.content, str):
            refuse(entry, name, "not accepted; it must be a subject or a list of subjects")
        if len(entry.content.split()) > 1 and name.startswith("publish"):
            refuse(
                entry, name, f"{entry.content!r}: queue groups are for subscribe, not for publish"
            )
        rules.append(entry.content)
    try:
        return read_rules(rules)
    except InvalidSubjectError as error:
        raise ConfigurationError(f"{value.place}: {name}: {error}") from None


def _responses(value: ConfigValue | None) -> ResponsePermission | None:
    """``true``, a number of answers, or ``{max, expires}``."""
    if value is None or value.content is False:
        return None
    most, expires = RESPONSES_MAX_DEFAULT, RESPONSES_EXPIRE_S_DEFAULT
    if isinstance(value.content, ConfigMap):
        fields = Fields(value, "allow_responses")
        said = fields.number("max", "max_msgs", "max_messages", "max_responses")
        most = most if said is None else said
        when = fields.take("expires", "expiration", "ttl")
        expires = expires if when is None else seconds_of(when, "expires")
        fields.no_more("not known in allow_responses; accepted are max and expires")
    elif isinstance(value.content, int) and not isinstance(value.content, bool):
        most = value.content
    elif value.content is not True:
        refuse(value, "allow_responses", "must be true, false, a number or { max, expires }")
    if most < 1:
        refuse(value, "allow_responses", f"max of {most}; accepted is at least 1 answer")
    return ResponsePermission(most, round(expires * 1e9))


Read = Callable[[str], str]
"""Gives the text of a file named in the configuration; raises OSError."""


def read_trust(top: Fields, read: Read) -> TokenTrust | None:
    """``operator`` or ``trusted_keys``, ``resolver: MEMORY`` and ``resolver_preload``; None without.

    An operator is a token, or the name of the file with it; trusted keys are those that sign accounts.
    Raises ConfigurationError with the place.
    """
    operator = top.take("operator", "operators", "roots", "root")
    trusted = top.take("trusted_keys", "trusted")
    if operator is not None and trusted is not None:
        refuse(trusted, "trusted_keys", "given beside an operator; accepted is one of them")
    operator, what = (operator, "operator") if trusted is None else (trusted, "trusted_keys")
    resolver, preload = top.take("resolver"), top.take("resolver_preload")
    if operator is None:
        for name, value in (("resolver", resolver), ("resolver_preload", preload)):
            if value is not None:
                refuse(value, name, "of no use without an operator")
        return None
    if resolver is not None and str(resolver.content).upper() not in ("MEM", "MEMORY"):
        refuse(resolver, "resolver", "not supported; accepted is MEMORY, with resolver_preload")
    if preload is None:
        refuse(operator, what, "needs accounts: resolver: MEMORY and resolver_preload")
    if not isinstance(preload.content, ConfigMap):
        refuse(preload, "resolver_preload", "must be a map of tokens by the keys of accounts")
    accounts = {name: _token(value, name, None) for name, value in preload.content.items()}
    listed = operator.content if isinstance(operator.content, list) else [operator]
    if trusted is not None:
        return TokenTrust((), accounts, tuple(_key(value) for value in listed))
    return TokenTrust(tuple(_token(value, "operator", read) for value in listed), accounts)


def _key(value: ConfigValue) -> str:
    text = value.content
    try:
        public_key(text if isinstance(text, str) else "", OPERATOR)
    except ConfigurationError as error:
        refuse(value, "trusted_keys", f"not accepted; each must be an operator's key: {error}")
    return str(text)


def _token(value: ConfigValue, name: str, read: Read | None) -> str:
    text = value.content
    if not isinstance(text, str) or not text:
        refuse(value, name, "not accepted; it must be a token")
    if text.startswith(_TOKEN) or read is None:
        return text
    try:
        return _armoured(read(text))
    except (OSError, UnicodeDecodeError) as error:
        refuse(value, name, f"cannot read the file {text!r}: {error}")


def _armoured(text: str) -> str:
    """The token in a file, which may stand between lines of dashes."""
    lines = [line.strip() for line in text.splitlines()]
    return next((line for line in lines if line.startswith(_TOKEN)), "")


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
