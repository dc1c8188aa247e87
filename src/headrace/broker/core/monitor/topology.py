"""What monitoring shows of other servers: that there are none, in the shapes tools look for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....api.times import format_time

if TYPE_CHECKING:
    from ..hub import Hub

__all__ = ["gatewayz", "leafz", "routez"]


def routez(hub: Hub) -> dict[str, Any]:
    """No routes to other servers of a cluster."""
    return {**_head(hub), "server_name": hub.server_name, "num_routes": 0, "routes": []}


def gatewayz(hub: Hub) -> dict[str, Any]:
    """No gateways to other clusters."""
    return {**_head(hub), "outbound_gateways": {}, "inbound_gateways": {}}


def leafz(hub: Hub) -> dict[str, Any]:
    """No leaf nodes."""
    return {**_head(hub), "leafnodes": 0, "leafs": []}


def _head(hub: Hub) -> dict[str, Any]:
    return {"server_id": hub.server_id, "now": format_time(hub.clock.now_ns())}
