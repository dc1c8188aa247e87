"""Services: endpoints that answer requests, found and measured by every NATS client (``$SRV``).

``documents`` has what is said of a service, pure; ``service`` the service itself, made by
``Connection.add_service``.
"""

from __future__ import annotations

from .documents import EndpointInfo, EndpointStats, ServiceInfo, ServiceStats
from .service import Service, ServiceGroup

__all__ = [
    "EndpointInfo",
    "EndpointStats",
    "Service",
    "ServiceGroup",
    "ServiceInfo",
    "ServiceStats",
]
