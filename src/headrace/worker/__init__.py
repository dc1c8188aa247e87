"""Workers: what a program handles is declared, and run until it is told to end.

::

    worker = Worker(name="billing")

    @worker.consumer("ORDERS", "billing", on_failure=DeadLetter("dead.billing"))
    async def bill(order: Order) -> None: ...

``headrace worker app:worker`` runs it: ``running`` does the work and answers probes, ``reloading``
starts it anew where its files change. ``typed`` and ``handling`` make a handler of a function, ``schemas``
and ``schema_conversion`` read and write by the schemas of a registry. Begin reading at ``app``.
"""

from __future__ import annotations

from .app import Worker
from .current import Delivered, current
from .done import Done
from .running import run
from .schemas import HttpRegistry, Schema, SchemaBucket
from .typed import MisfitError

__all__ = [
    "Delivered",
    "Done",
    "HttpRegistry",
    "MisfitError",
    "Schema",
    "SchemaBucket",
    "Worker",
    "current",
    "run",
]
