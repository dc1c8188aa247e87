"""Definitions from the configuration: applied when the configuration is new or changed, otherwise left
alone.

Changes made over HTTP stay until the configuration itself changes. A consumer with a type that is neither
push nor pull is not created, as specified; every other error stops the start.
"""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from ..errors import ConfigurationError
from .errors import JobsError
from .models import ConsumerSettings, Options
from .retry_policy import with_kind
from .service import page_reads
from .service.auditing import note_event
from .service.definitions import channels, consumers, definitions
from .signature import new_secret
from .states import State
from .store import Tx

__all__ = [
    "Left",
    "SeedChannel",
    "SeedConsumer",
    "SeedProducer",
    "Seeds",
    "apply_seeds",
    "left_over",
]


_LOG: Final = logging.getLogger("headrace.jobs")
_SEEDED: Final = "seeded_consumers"
_LEFT: Final = "left_consumers"


class SeedConsumer(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    token: str
    """Token that it sends. Required."""
    previous_token: str | None = None
    """Further token that is accepted meanwhile."""
    name: str | None = None
    """Name for people."""
    type: str = ""
    """`push` or `pull`; empty: push."""
    callback_url: str = ""
    """URL to which jobs are pushed."""
    max_retries: int | None = None
    """Retries of its jobs; default: that of the service."""
    settings: ConsumerSettings | None = None
    """retry, breaker, timeout_s, concurrency, rate_per_s, sign, outcomes, filter: as in a form."""


class SeedChannel(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    token: str
    """Token by which the channel is read. Required."""
    name: str | None = None
    """Name for people."""
    events_channel: str | None = None
    """A channel that is told of dead letters and other events of this one."""
    consumers: dict[str, SeedConsumer] = {}
    """`[channels.<id>.consumers.<id>]`."""


class SeedProducer(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    token: str
    """Token that it sends. Required."""
    name: str | None = None
    """Name for people."""


@dataclass(frozen=True, slots=True)
class Seeds:
    """Producers and channels with their consumers, by id."""

    producers: dict[str, SeedProducer] = field(default_factory=dict, repr=False)
    channels: dict[str, SeedChannel] = field(default_factory=dict, repr=False)

    @classmethod
    def read(cls, document: dict[str, Any]) -> Seeds:
        """Read the tables ``producers`` and ``channels`` of a configuration."""
        try:
            return cls(
                msgspec.convert(document.get("producers", {}), dict[str, SeedProducer]),
                msgspec.convert(_with_kinds(document.get("channels", {})), dict[str, SeedChannel]),
            )
        except msgspec.ValidationError as error:
            raise ConfigurationError(f"definitions in the configuration: {error}") from None

    def digest(self) -> str:
        """A digest that changes with any change of the definitions."""
        return hashlib.sha256(msgspec.json.encode([self.producers, self.channels])).hexdigest()


def _with_kinds(given: Any) -> Any:
    """The tables with the kind of each list of delays; what is no table is left to be refused."""
    if not isinstance(given, dict):
        return given
    found = {name: _with_kinds(value) for name, value in given.items()}
    retry = found.get("retry")
    if isinstance(retry, dict) and isinstance(retry.get("delays_s"), list):
        found["retry"] = with_kind(retry)
    return found


class _Unconditional(definitions.Precondition):
    def check(self, updated_us: int) -> None:
        del updated_us


def apply_seeds(tx: Tx, seeds: Seeds, options: Options, now: int) -> bool:
    """Create or change everything in ``seeds``, or nothing. Returns whether the configuration was new."""
    digest = seeds.digest()
    known = tx.one("get_meta", key="seed_digest")
    if known is None and not (seeds.producers or seeds.channels):
        return False
    if known is not None and known["value"] == digest:
        return False
    always = _Unconditional()
    try:
        for producer_id, producer in seeds.producers.items():
            change = definitions.Change(producer.name, producer.token)
            channels.put_producer(tx, producer_id, change, always, now)
        for channel_id, channel in seeds.channels.items():
            change = definitions.Change(channel.name, channel.token)
            channels.put_channel(tx, channel_id, change, always, now)
            for consumer_id, consumer in channel.consumers.items():
                _put(tx, channel_id, consumer_id, consumer, options, now)
        for channel_id, channel in seeds.channels.items():
            if channel.events_channel is not None:
                channels.tell_channel(tx, channel_id, channel.events_channel or None, now)
    except JobsError as error:
        raise ConfigurationError(f"definitions in the configuration: {error}") from None
    tx.run("put_meta", key="seed_digest", value=digest)
    _note_left(tx, seeds, now)
    return True


@dataclass(frozen=True, slots=True)
class Left:
    """A consumer that was in the configuration and is there no more: it stays, and so do its jobs."""

    channel_id: str
    consumer_id: str
    waiting: int
    running: int

    def sentence(self) -> str:
        """Say what people should know of it."""
        return (
            f"the consumer {self.channel_id}/{self.consumer_id} is not in the configuration any more, "
            f"and stays: {self.waiting} jobs wait and {self.running} run; "
            f"`headrace jobs delete-consumer {self.channel_id} {self.consumer_id}` removes it"
        )


def left_over(tx: Tx) -> list[Left]:
    """The consumers that have left the configuration and still exist."""
    noted = {tuple(name) for name in _noted(tx, _LEFT)}
    if not noted:
        return []
    return [
        Left(
            row["channel_id"],
            row["consumer_id"],
            counts.get(State.QUEUED, 0),
            counts.get(State.INFLIGHT, 0),
        )
        for row, counts in page_reads.consumer_counts(tx)
        if (row["channel_id"], row["consumer_id"]) in noted
    ]


def _note_left(tx: Tx, seeds: Seeds, now: int) -> None:
    """Note which consumers the configuration has, and tell of those that it had."""
    names = {(channel, name) for channel, one in seeds.channels.items() for name in one.consumers}
    had = {(channel, name) for channel, name in _noted(tx, _SEEDED)}
    left_before = {(channel, name) for channel, name in _noted(tx, _LEFT)}
    left = (had | left_before) - names
    tx.run("put_meta", key=_SEEDED, value=json.dumps(sorted(names)))
    tx.run("put_meta", key=_LEFT, value=json.dumps(sorted(left)))
    for one in left_over(tx):
        if (one.channel_id, one.consumer_id) not in left_before:
            named = one.channel_id, one.consumer_id
            note_event(tx, "left_configuration", now, one.sentence(), *named)


def _noted(tx: Tx, key: str) -> list[tuple[str, str]]:
    row = tx.one("get_meta", key=key)
    return [] if row is None else msgspec.json.decode(row["value"], type=list[tuple[str, str]])


def _put(
    tx: Tx, channel_id: str, consumer_id: str, seed: SeedConsumer, options: Options, now: int
) -> None:
    if seed.type not in {"", "push", "pull"}:
        _LOG.warning(
            "the configured consumer %s/%s is not created: its type is %r, accepted are push and pull",
            channel_id,
            consumer_id,
            seed.type,
        )
        return
    change = consumers.ConsumerChange(
        name=seed.name,
        token=seed.token,
        previous_token=seed.previous_token,
        callback_url=seed.callback_url or None,
        kind=seed.type or None,
        max_retries=seed.max_retries,
        settings=seed.settings,
    )
    consumers.put_consumer(
        tx,
        channel_id,
        consumer_id,
        change,
        None,
        now,
        defaults=options.default_settings(),
        max_retries=options.max_retries,
        new_secret=new_secret,
    )
