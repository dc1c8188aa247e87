"""The HTTP interface of the service: routes, shapes, codes. One table declares them all.

``app`` puts it together: the endpoints of ``definitions``, ``messages``, ``jobs`` and ``operations``, behind
what every request passes (``asgi``). What endpoints share is in ``request``, and their JSON in ``shapes``;
``openapi`` describes them, and has the page that shows it.
"""

from __future__ import annotations

from .app import create_app

__all__ = ["create_app"]
