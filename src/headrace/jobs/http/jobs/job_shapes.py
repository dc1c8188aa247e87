"""The JSON of jobs that are looked for, cancelled, and handed out again."""

from __future__ import annotations

import msgspec

from ..shapes import Blocker, Progress


class FoundJob(msgspec.Struct):
    id: str
    consumer: str
    message: str
    state: str
    waits_for: str | None
    blocked_by: Blocker | None
    priority: int
    retries: int
    claims: int
    created_at: str
    changed_at: str
    due_at: str | None
    last_error: str | None
    cancelled_at: str | None
    progress: Progress | None
    url: str


class FoundJobs(msgspec.Struct):
    jobs: list[FoundJob]
    pages: dict[str, str]


class CancelBody(msgspec.Struct, forbid_unknown_fields=True):
    job: str | None = None
    consumer: str | None = None
    message: str | None = None
    states: list[str] = []
    older_than_seconds: float = 0.0
    payload: dict[str, tuple[str, ...]] = {}
    dry_run: bool = False


class CancelledJobs(msgspec.Struct):
    waiting: int
    running: int
    consumers: dict[str, int]
    dry_run: bool


class ReplayBody(msgspec.Struct, forbid_unknown_fields=True):
    consumer: str | None = None
    messages: list[str] = []
    states: list[str] = []
    since: str | None = None
    until: str | None = None
    payload: dict[str, tuple[str, ...]] = {}
    rate_per_s: float = 0.0
    dry_run: bool = False


class ReplayedJobs(msgspec.Struct):
    delivered: int
    dead: int
    consumers: dict[str, int]
    last_due_at: str | None
    dry_run: bool
