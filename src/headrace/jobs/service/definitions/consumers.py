"""Consumers: read, written under a precondition, authenticated by their tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, cast
from urllib.parse import urlsplit

import msgspec

from ... import ids, limits
from ...errors import JobsError, bad_request, forbidden, not_found
from ...models import Consumer, ConsumerSettings, Kind
from ...store import Row, Tx
from ..auditing import note_event
from ..fanning import note_filters
from ..notices import tell_of_consumer
from .channels import find_channel
from .definitions import Change, Precondition, next_version
from .sealing import open_sealed, seal

__all__ = [
    "DEFINITIONS",
    "ConsumerChange",
    "authorised_consumer",
    "authorised_pull_consumer",
    "change_consumer",
    "consumer_of",
    "count_dying",
    "find_consumer",
    "not_pulled",
    "put_consumer",
    "token_is_of",
]

DEFINITIONS: Final = 0  # not a consumer's number: rung when a definition changes
_encode: Final = msgspec.json.encode


@dataclass(frozen=True, slots=True)
class ConsumerChange(Change):
    """The fields of a PUT of a consumer."""

    callback_url: str | None = None
    kind: str | None = None
    max_retries: int | None = None
    settings: ConsumerSettings | None = None
    paused: bool | None = None
    enable: bool = False
    secrets: tuple[str, ...] | None = None
    previous_token: str | None = None
    """Accepted beside ``token``; an empty one: no other. Not given: none, if the token is another one."""

    def check(self) -> None:
        Change.check(self)
        if self.kind is not None and self.kind not in {"push", "pull"}:
            raise bad_request("invalid_type", "type is push or pull", "type")
        if self.callback_url is not None:
            _check_url(self.callback_url)
        if self.max_retries is not None and not 0 <= self.max_retries <= limits.MAX_RETRIES_MAX:
            raise bad_request(
                "invalid_retries", f"0 to {limits.MAX_RETRIES_MAX} retries", "max_retries"
            )
        if self.previous_token:
            ids.check_token(self.previous_token, "previous_token")
        if self.settings is not None:
            self.settings.check()


def find_consumer(tx: Tx, channel_id: str, consumer_id: str) -> Consumer:
    """The consumer; 404 if the channel or the consumer does not exist."""
    row = tx.one("get_consumer", channel_id=channel_id, consumer_id=consumer_id)
    if row is None:
        raise not_found("channel", "channelId")
    if row["seq"] is None:
        raise not_found("consumer", "consumerId")
    return consumer_of(tx, row)


def put_consumer(
    tx: Tx,
    channel_id: str,
    consumer_id: str,
    change: ConsumerChange,
    precondition: Precondition | None,
    now: int,
    *,
    defaults: ConsumerSettings,
    max_retries: int,
    new_secret: Callable[[], str],
) -> tuple[Consumer, bool]:
    """Create a consumer, or change it if the precondition holds (``None``: unconditionally).

    Returns the consumer and whether this call set or created its token. Without a type, a new consumer is
    push and an existing one keeps its type.
    """
    ids.check_id(consumer_id, "consumerId")
    change.check()
    channel = find_channel(tx, channel_id)
    row = tx.one("get_consumer", channel_id=channel_id, consumer_id=consumer_id)
    if row is None or row["seq"] is None:
        kind = cast(Kind, change.kind or "push")
        _check_callback(kind, change.callback_url or "")
        made = tx.one(
            "insert_consumer",
            channel_seq=channel.seq,
            consumer_id=consumer_id,
            name=change.name or consumer_id,
            callback_url=change.callback_url or "",
            kind=kind,
            max_retries=max_retries if change.max_retries is None else change.max_retries,
            settings=_encode(change.settings or defaults).decode(),
            now=now,
        )
        if made is not None:
            token, secrets = change.token or ids.new_token(), change.secrets or (new_secret(),)
            previous = change.previous_token or None
            tx.run(
                "put_secrets", seq=made["seq"], **_sealed(tx, made["seq"], token, previous, secrets)
            )
            if change.settings is not None:
                note_filters(tx, channel.seq)
            tx.ring([made["seq"], DEFINITIONS])
            return find_consumer(tx, channel_id, consumer_id), True
    changed = change_consumer(tx, channel_id, consumer_id, lambda _: change, precondition, now)
    return changed, change.token is not None


def change_consumer(
    tx: Tx,
    channel_id: str,
    consumer_id: str,
    decide: Callable[[Consumer], ConsumerChange],
    precondition: Precondition | None,
    now: int,
) -> Consumer:
    """Change an existing consumer if the precondition holds (``None``: unconditionally).

    ``decide`` receives the current consumer, locked until the transaction ends. Decisions that depend on
    the current settings are made there, so that neither of two concurrent changes is lost.
    """
    tx.one("lock_consumer", seq=find_consumer(tx, channel_id, consumer_id).seq)
    present = find_consumer(tx, channel_id, consumer_id)
    if precondition is not None:
        precondition.check(present.updated_us)
    change = decide(present)
    change.check()
    _update_consumer(tx, present, change, now)
    return find_consumer(tx, channel_id, consumer_id)


def _update_consumer(tx: Tx, present: Consumer, change: ConsumerChange, now: int) -> None:
    dying = count_dying(tx, present, change)
    if dying:
        detail = (
            f"max_retries {present.max_retries} → {change.max_retries}: the next failure of "
            f"{dying} unfinished jobs is their last"
        )
        named = present.channel_id, present.consumer_id
        note_event(tx, "retries_lowered", now, detail, *named)
    kind = cast(Kind, change.kind or present.kind)
    callback_url = present.callback_url if change.callback_url is None else change.callback_url
    _check_callback(kind, callback_url)
    secrets = change.secrets or present.secrets
    token, previous = change.token or present.token, _previous_token(present, change)
    tx.run(
        "update_consumer",
        seq=present.seq,
        name=change.name or present.name,
        **_sealed(tx, present.seq, token, previous, secrets),
        callback_url=callback_url,
        kind=kind,
        max_retries=present.max_retries if change.max_retries is None else change.max_retries,
        settings=_encode(change.settings or present.settings).decode(),
        paused=int(present.paused if change.paused is None else change.paused),
        disabled_us=None if change.enable else present.disabled_us,
        disabled_reason=None if change.enable else present.disabled_reason,
        failing_since_us=None if change.enable else present.failing_since_us,
        updated=next_version(present.updated_us, now),
    )
    if change.settings is not None and change.settings.filter != present.settings.filter:
        note_filters(tx, present.channel_seq)
    if change.enable and present.disabled_us is not None:
        tell_of_consumer(tx, present.seq, "enabled", None, now)
    tx.ring([present.seq, DEFINITIONS])


def _sealed(
    tx: Tx, seq: int, token: str, previous: str | None, secrets: tuple[str, ...]
) -> dict[str, str | None]:
    """The secrets of a consumer as its row has them."""
    texts = {"token": token, "previous_token": previous, "secrets": _encode(secrets).decode()}
    return {column: seal(tx, seq, column, text) for column, text in texts.items()}


def count_dying(tx: Tx, present: Consumer, change: ConsumerChange) -> int:
    """Count unfinished jobs that would have been tried again, and die of their next failure by ``change``."""
    if change.max_retries is None or change.max_retries >= present.max_retries:
        return 0
    row = tx.one(
        "count_spent",
        consumer_seq=present.seq,
        max_retries=change.max_retries,
        before=present.max_retries,
    )
    return 0 if row is None else int(row["n"])


def _previous_token(present: Consumer, change: ConsumerChange) -> str | None:
    if change.previous_token is not None:
        return change.previous_token or None
    return present.previous_token if change.token in (None, present.token) else None


def token_is_of(consumer: Consumer, given: str) -> bool:
    """Whether ``given`` is the consumer's token, or the one before, if that is still accepted."""
    known = (consumer.token, consumer.previous_token)
    return any(ids.tokens_equal(token, given) for token in known if token is not None)


def authorised_consumer(
    tx: Tx,
    channel_id: str,
    consumer_id: str,
    channel_token: str,
    consumer_token: str,
    *,
    unknown: int = 401,
    granted: bool = False,
) -> Consumer:
    """The consumer, checked in the specification's order: 404, 403, ``unknown`` (401), 403.

    ``granted``: an API key stands for both tokens.
    """
    row = tx.once(
        ("consumer", channel_id, consumer_id),
        lambda: tx.one("get_consumer", channel_id=channel_id, consumer_id=consumer_id),
    )
    if row is None:
        raise not_found("channel", "channelId")
    if not granted and not ids.token_matches(row["channel_token_hash"], channel_token):
        raise forbidden("X-Broker-Channel-Token")
    if row["seq"] is None:
        raise JobsError(unknown, "unknown_consumer", "there is no such consumer", "consumerId")
    consumer = tx.once(("decoded consumer", channel_id, consumer_id), lambda: consumer_of(tx, row))
    if not granted and not token_is_of(consumer, consumer_token):
        raise forbidden("X-Broker-Consumer-Token")
    return consumer


def authorised_pull_consumer(
    tx: Tx,
    channel_id: str,
    consumer_id: str,
    channel_token: str,
    consumer_token: str,
    *,
    granted: bool = False,
) -> Consumer:
    """The pull consumer, checked as ``authorised_consumer`` does; 412 if it is not a pull consumer."""
    consumer = authorised_consumer(
        tx, channel_id, consumer_id, channel_token, consumer_token, granted=granted
    )
    if consumer.kind != "pull":
        raise not_pulled()
    return consumer


def not_pulled() -> JobsError:
    """Refuse somebody who asks for the jobs of a push consumer."""
    return JobsError(412, "not_a_pull_consumer", "only pull consumers ask for their jobs", "type")


def consumer_of(tx: Tx, row: Row) -> Consumer:
    """A row of the table, joined with its channel's id."""

    def opened(column: str) -> str | None:
        return open_sealed(tx, row["seq"], column, row[column])

    return Consumer(
        seq=row["seq"],
        channel_seq=row["channel_seq"],
        channel_id=row["channel_id"],
        consumer_id=row["consumer_id"],
        name=row["name"],
        kind=row["kind"],
        callback_url=row["callback_url"],
        max_retries=row["max_retries"],
        settings=_decode_settings(row["settings"]),
        paused=bool(row["paused"]),
        disabled_us=row["disabled_us"],
        disabled_reason=row["disabled_reason"],
        failing_since_us=row["failing_since_us"],
        updated_us=row["updated_us"],
        token=opened("token") or "",
        previous_token=opened("previous_token"),
        secrets=msgspec.json.decode(opened("secrets") or "[]", type=tuple[str, ...]),
    )


def _decode_settings(text: str) -> ConsumerSettings:
    return msgspec.json.decode(text, type=ConsumerSettings)


def _check_callback(kind: Kind, url: str) -> None:
    if kind == "push" and not url:
        raise bad_request(
            "callback_missing", "a push consumer needs an absolute callback URL", "callbackUrl"
        )


def _check_url(url: str) -> None:
    ids.check_text(url, "callbackUrl", limits.URL_CHARS_MAX)
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - reading it is the check
    except ValueError as error:
        raise bad_request("invalid_url", f"this is no URL: {error}", "callbackUrl") from None
    if url and (parts.scheme not in {"http", "https"} or not parts.hostname):
        raise bad_request(
            "invalid_url", "an absolute http:// or https:// URL is accepted", "callbackUrl"
        )
    try:
        ids.ascii_host(parts.hostname or "")
    except ValueError as error:
        raise bad_request(
            "invalid_url",
            f"a host is ASCII, or a name that IDNA 2008 allows; this one is not: {error}",
            "callbackUrl",
        ) from None
    if parts.username is not None or parts.password is not None:
        raise bad_request(
            "invalid_url", "a URL must not carry a user name or password", "callbackUrl"
        )
