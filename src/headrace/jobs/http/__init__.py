"""The HTTP interface of the service: routes, shapes, codes. One table declares them all."""

from __future__ import annotations

from .app import create_app

__all__ = ["create_app"]
