"""Calls that nats-server answers and we refuse: those of clusters, and backups of streams.

A tool that asks learns at once what is not to be had, instead of waiting for an answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from .....api.base import Document, decode
from .....api.errors import Errors
from ..config.refused import Refused
from .dispatcher import ApiDispatcher, Call
from .ports import Assets

_BACKUPS: Final = (
    "backups are not supported by this server; copy its store directory while it is stopped"
)


class _Backup(Document, frozen=True, kw_only=True):
    """Body of STREAM.SNAPSHOT and STREAM.RESTORE, as far as it matters here."""

    deliver_subject: str = ""
    no_consumers: bool = False
    chunk_size: int = 0
    window_size: int = 0
    jsck: bool = False
    config: dict[str, Any] = msgspec.field(default_factory=dict)
    state: dict[str, Any] = msgspec.field(default_factory=dict)


class RefusedApi:
    """Their endpoints, in nats-server's order of checks as far as it goes."""

    def __init__(self, assets: Assets, api: ApiDispatcher) -> None:
        self._assets = assets
        for verb, kind, names in (
            ("STREAM.LEADER.STEPDOWN", "stream_leader_stepdown_response", 1),
            ("STREAM.PEER.REMOVE", "stream_remove_peer_response", 1),
            ("CONSUMER.LEADER.STEPDOWN", "consumer_leader_stepdown_response", 2),
        ):
            api.add(verb, kind, _needs_cluster, names=(names, names))
        api.add("STREAM.SNAPSHOT", "stream_snapshot_response", self._snapshot)
        api.add(
            "STREAM.RESTORE",
            "stream_restore_response",
            self._restore,
            blank={"deliver_subject": ""},
        )

    def _snapshot(self, call: Call) -> Document | None:
        self._read(call, lambda: self._assets.streams.get(call.names[0]) is not None)
        raise Refused(Errors.STREAM_SNAPSHOT, err=_BACKUPS)

    def _restore(self, call: Call) -> Document | None:
        request = self._read(call)
        if request.config.get("name", call.names[0]) not in ("", call.names[0]):
            raise Refused(Errors.STREAM_NAME_MISMATCH)
        if call.names[0] in self._assets.streams:
            raise Refused(Errors.STREAM_NAME_EXISTS_RESTORE)
        raise Refused(Errors.STREAM_RESTORE, err=_BACKUPS)

    def _read(self, call: Call, is_there: Callable[[], bool] = lambda: True) -> _Backup:
        if call.payload.strip() in (b"", b"{}"):
            raise Refused(Errors.BAD_REQUEST)
        if not is_there():
            raise Refused(Errors.STREAM_NOT_FOUND)
        return decode(call.payload, _Backup, strict=True)


def _needs_cluster(call: Call) -> Document | None:
    raise Refused(Errors.CLUSTER_REQUIRED)
