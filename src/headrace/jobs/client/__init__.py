"""Clients of a job service: asyncio, blocking, and a worker that keeps its leases alive.

Requests and the parsing of answers are without I/O, in ``calls`` and ``management``. ``aio`` sends them
with asyncio; ``blocking`` is the same source without ``async``, written by ``make blocking``.
"""

from __future__ import annotations

from ..errors import JobsError
from ..push.signature import WebhookVerificationError, verify
from .aio import AsyncJobsClient
from .blocking import JobsClient
from .calls import ItemResult, LeasedJob, OutgoingMessage, Tokens
from .worker import BlockingWorker, Fail, Worker, worker

__all__ = [
    "AsyncJobsClient",
    "BlockingWorker",
    "Fail",
    "ItemResult",
    "JobsClient",
    "JobsError",
    "LeasedJob",
    "OutgoingMessage",
    "Tokens",
    "WebhookVerificationError",
    "Worker",
    "verify",
    "worker",
]
