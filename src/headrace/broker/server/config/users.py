"""Users and what they may do, as nats-server's files say it: the same tables in both formats."""

from __future__ import annotations

from typing import Final, NamedTuple

from ....errors import ConfigurationError, InvalidSubjectError
from ....subjects import SubjectFilter
from ...core.auth.authentication import USER, User, check_secret, public_key
from ...core.auth.permissions import Permissions, QueueRule, ResponsePermission, read_rules
from .fields import Fields, refuse, seconds_of
from .syntax import ConfigMap, ConfigValue

RESPONSES_MAX_DEFAULT: Final = 1  # nats-server: DEFAULT_ALLOW_RESPONSE_MAX_MSGS
RESPONSES_EXPIRE_S_DEFAULT: Final = 120.0  # nats-server: DEFAULT_ALLOW_RESPONSE_EXPIRATION

_ALL: Final = SubjectFilter([b">"])


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
