"""Clients of a job service: asyncio, blocking, and a worker that keeps its leases alive.

Requests and the parsing of answers are without I/O, in ``calls`` and ``management``. ``aio`` sends them
with asyncio, ``blocking`` makes its methods of those, which then send by the thread that calls (``sending``).
"""

from __future__ import annotations

from ..errors import JobsError
from ..signature import WebhookVerificationError, verify
from .aio import AsyncJobsClient
from .blocking import BlockingWorker, JobsClient, worker
from .calls import ItemResult, LeasedJob, OutgoingMessage, Progress, Tokens
from .running import JobCancelled, RunningJob
from .worker import Fail, Worker

__all__ = [
    "AsyncJobsClient",
    "BlockingWorker",
    "Fail",
    "ItemResult",
    "JobCancelled",
    "JobsClient",
    "JobsError",
    "LeasedJob",
    "OutgoingMessage",
    "Progress",
    "RunningJob",
    "Tokens",
    "WebhookVerificationError",
    "Worker",
    "verify",
    "worker",
]
