"""A Django project that takes orders. Run it with: gunicorn --workers 2 --threads 8 django_shop:wsgi

Or as ASGI: uvicorn django_shop:asgi. NATS_URL says where the server is. It is one file, so that it is easy to
read; in a project the parts stand where they usually do.
"""

import asyncio
import os
import threading
from functools import cache

import django
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, JsonResponse
from django.urls import path

import headrace
from headrace import sync

ANSWER_WITHIN_S = 2.0  # a request waits no longer for the server
AWAY = (
    headrace.RequestTimeoutError,
    headrace.DisconnectedError,
    headrace.OutcomeUnknownError,
    headrace.NoRespondersError,
    headrace.ConnectFailedError,
)

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
    """That of this process, made by its first request: not in ``AppConfig.ready``, which runs before the
    fork of ``gunicorn --preload``, and in every ``manage.py`` command."""
    with _connecting:
        return _connected(os.getpid())


def stored(subject: str, request: HttpRequest) -> HttpResponse:
    """Store the request's body as a message. Repeated with the same key it is stored once."""
    if request.method != "POST":
        return HttpResponseNotAllowed(["POST"])
    key = request.headers.get("Idempotency-Key")
    if not key:
        return JsonResponse({"error": "the header Idempotency-Key is missing"}, status=400)
    try:
        ack = connection().jetstream().publish(subject, request.body, msg_id=key)
    except AWAY as error:  # what was not sent will not be; what was sent may be stored
        is_unknown = isinstance(error, headrace.OutcomeUnknownError)
        said = {"error": str(error), "stored": "unknown" if is_unknown else "no"}
        return JsonResponse(said, status=503, headers={"Retry-After": "5"})
    return JsonResponse({"number": ack.seq, "again": ack.duplicate}, status=201)


def order(request: HttpRequest) -> HttpResponse:
    """A view that blocks: on a thread of the server's."""
    return stored("orders.new", request)


async def later(request: HttpRequest) -> HttpResponse:
    """Under WSGI an async view has an event loop of its own at each call, so a connection of asyncio would
    not outlive it. The blocking one serves all loops, from a thread."""
    return await asyncio.to_thread(stored, "orders.later", request)


def healthz(request: HttpRequest) -> HttpResponse:
    """Whether the process lives. It says nothing of the server: a restart would not bring that back."""
    return HttpResponse("ok")


def readyz(request: HttpRequest) -> HttpResponse:
    """Whether requests can be served now."""
    try:
        health = connection().health()
    except headrace.ConnectFailedError as error:
        return JsonResponse({"ready": False, "reason": str(error)}, status=503)
    said = {"ready": bool(health), "reason": health.reason}
    return JsonResponse(said, status=200 if health else 503)


urlpatterns = [
    path("orders", order),
    path("later", later),
    path("healthz", healthz),
    path("readyz", readyz),
]

settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["127.0.0.1", "localhost"])
django.setup()
wsgi = get_wsgi_application()
asgi = get_asgi_application()
