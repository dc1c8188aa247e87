"""Whether the broker is well, and a stream or a consumer somebody asks about is there.

The shapes and the sentences are those of nats-server's ``/healthz``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from .monitored import Monitored


class HealthQuestion(NamedTuple):
    """What is asked. Empty names ask for nothing in particular."""

    account: str = ""
    stream: str = ""
    consumer: str = ""
    jetstream_only: bool = False
    """Only whether JetStream is enabled."""
    details: bool = False
    """Say what is wrong as a list of records instead of a sentence."""


class _Trouble(NamedTuple):
    status: str
    code: int
    kind: str
    text: str


def healthz(hub: Monitored, asked: HealthQuestion | None = None) -> tuple[int, dict[str, Any]]:
    """The HTTP status and the document: 200 while everything that was promised can be kept."""
    asked = asked or HealthQuestion()
    trouble = _of_broker(hub) or _of_question(asked) or _of_assets(hub, asked)
    if trouble is None:
        return 200, {"status": "ok"}
    if not asked.details:
        return trouble.code, {"status": trouble.status, "error": trouble.text}
    record: dict[str, Any] = {"type": trouble.kind}
    if trouble.kind in ("ACCOUNT", "STREAM", "CONSUMER"):
        record["account"] = asked.account
    if trouble.kind in ("STREAM", "CONSUMER"):
        record["stream"] = asked.stream
    if trouble.kind == "CONSUMER":
        record["consumer"] = asked.consumer
    return trouble.code, {"status": "error", "errors": [{**record, "error": trouble.text}]}


def _of_broker(hub: Monitored) -> _Trouble | None:
    if hub.is_shutting_down:
        return _Trouble("unavailable", 503, "CONN", "shutting down")
    if hub.storage_error is not None:
        return _Trouble("error", 503, "JETSTREAM", f"storage: {hub.storage_error}")
    return None


def _of_question(asked: HealthQuestion) -> _Trouble | None:
    """What is missing from the question itself."""
    for name, needed in (("stream", asked.consumer), ("account", asked.stream)):
        if needed and not getattr(asked, name):
            checked = "consumer" if name == "stream" else "stream"
            text = f'"{name}" must not be empty when checking {checked} health'
            return _Trouble("error", 400, "BAD_REQUEST", text)
    return None


def _of_assets(hub: Monitored, asked: HealthQuestion) -> _Trouble | None:
    if (asked.jetstream_only or asked.account) and not hub.accounts.engines:
        return _Trouble("unavailable", 503, "JETSTREAM", "JetStream is not enabled")
    if asked.jetstream_only or not asked.account:
        return None
    account = hub.accounts.get(asked.account)
    if account is None or account.engine is None:
        text = f'JetStream account "{asked.account}" not found'
        return _Trouble("unavailable", 404, "ACCOUNT", text)
    if not asked.stream:
        return None
    stream = account.engine.registry.streams.get(asked.stream)
    if stream is None:
        text = f'JetStream stream "{asked.stream}" not found on account "{asked.account}"'
        return _Trouble("unavailable", 404, "STREAM", text)
    if asked.consumer and asked.consumer not in stream.consumers:
        text = (
            f'JetStream consumer "{asked.consumer}" not found for stream "{asked.stream}" '
            f'on account "{asked.account}"'
        )
        return _Trouble("unavailable", 404, "CONSUMER", text)
    return None
