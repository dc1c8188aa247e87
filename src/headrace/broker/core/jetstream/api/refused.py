"""Calls that nats-server answers and we refuse: those of clusters.

A tool that asks learns at once what is not to be had, instead of waiting for an answer.
"""

from __future__ import annotations

from .....api.base import Document
from .....api.errors import Errors
from ..config.refused import Refused
from .dispatcher import ApiDispatcher, Call


class RefusedApi:
    """Their endpoints."""

    def __init__(self, api: ApiDispatcher) -> None:
        for verb, kind, names in (
            ("STREAM.LEADER.STEPDOWN", "stream_leader_stepdown_response", 1),
            ("STREAM.PEER.REMOVE", "stream_remove_peer_response", 1),
            ("CONSUMER.LEADER.STEPDOWN", "consumer_leader_stepdown_response", 2),
        ):
            api.add(verb, kind, _needs_cluster, names=(names, names))


def _needs_cluster(call: Call) -> Document | None:
    raise Refused(Errors.CLUSTER_REQUIRED)
