"""A Flask application that takes orders. Run it with: gunicorn --workers 2 --threads 8 flask_shop:app

NATS_URL says where the server is. Each worker process has one connection, which all its threads share.
"""

import asyncio
import os
import threading
from functools import cache

import flask

import headrace
from headrace import sync

ANSWER_WITHIN_S = 2.0  # a request waits no longer for the server

app = flask.Flask(__name__)
_connecting = threading.Lock()


@cache
def _connected(process: int) -> sync.Connection:
    connection = sync.connect(
        os.environ.get("NATS_URL", "nats://127.0.0.1:4222"),
        name="shop",
        connect_timeout=ANSWER_WITHIN_S,
        request_timeout=ANSWER_WITHIN_S,
        delivery_timeout=ANSWER_WITHIN_S,
    )
    connection.jetstream().create_or_update_stream(
        name="ORDERS", subjects=["orders.*"], duplicate_window=3600
    )
    return connection


def connection() -> sync.Connection:
    """That of this process, made by its first request: ``gunicorn --preload`` forks, which none outlives."""
    with _connecting:
        return _connected(os.getpid())


def stored(subject: str, body: bytes, key: str | None) -> tuple[dict[str, object], int]:
    """Store the body as a message. Repeated with the same key it is stored once."""
    if not key:
        return {"error": "the header Idempotency-Key is missing"}, 400
    ack = connection().jetstream().publish(subject, body, msg_id=key)
    return {"number": ack.seq, "again": ack.duplicate}, 201


@app.post("/orders")
def order() -> tuple[dict[str, object], int]:
    """A view that blocks: on a thread of the server's."""
    request = flask.request
    return stored("orders.new", request.get_data(), request.headers.get("Idempotency-Key"))


@app.post("/later")
async def later() -> tuple[dict[str, object], int]:
    """An async view has an event loop of its own at each call, so a connection of asyncio would not outlive
    it. The blocking one serves all loops, from a thread."""
    body, key = flask.request.get_data(), flask.request.headers.get("Idempotency-Key")
    return await asyncio.to_thread(stored, "orders.later", body, key)


@app.get("/healthz")
def healthz() -> str:
    """Whether the process lives. It says nothing of the server: a restart would not bring that back."""
    return "ok"


@app.get("/readyz")
def readyz() -> tuple[dict[str, object], int]:
    """Whether requests can be served now."""
    try:
        health = connection().health()
    except headrace.ConnectFailedError as error:
        return {"ready": False, "reason": str(error)}, 503
    return {"ready": bool(health), "reason": health.reason}, 200 if health else 503


@app.errorhandler(headrace.RequestTimeoutError)
@app.errorhandler(headrace.DisconnectedError)
@app.errorhandler(headrace.OutcomeUnknownError)
@app.errorhandler(headrace.NoRespondersError)
@app.errorhandler(headrace.ConnectFailedError)
def away(error: Exception) -> tuple[dict[str, object], int, dict[str, str]]:
    """The server is away. What was sent may be stored, what was not will not be: the same key is safe."""
    is_unknown = isinstance(error, headrace.OutcomeUnknownError)
    said: dict[str, object] = {"error": str(error), "stored": "unknown" if is_unknown else "no"}
    return said, 503, {"Retry-After": "5"}
