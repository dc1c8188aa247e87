"""A FastAPI service that takes orders. Run it with: uvicorn fastapi_shop:app --workers 3

NATS_URL says where the server is. Each worker process has one connection, which all its requests share.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from typing import Annotated

import fastapi
import pydantic
from fastapi.responses import JSONResponse

import headrace

ANSWER_WITHIN_S = 2.0  # a request waits no longer for the server


AWAY = (
    headrace.RequestTimeoutError,
    headrace.DisconnectedError,
    headrace.OutcomeUnknownError,
    headrace.NoRespondersError,
)


async def connected() -> headrace.Connection:
    """Tried until the server is there."""
    connection = await headrace.connect(
        os.environ.get("NATS_URL", "nats://127.0.0.1:4222"),
        name="shop",
        request_timeout=ANSWER_WITHIN_S,
        delivery_timeout=ANSWER_WITHIN_S,
        retry_first_connect=True,
    )
    try:
        while True:
            with contextlib.suppress(*AWAY):  # it has gone again
                await connection.jetstream().create_or_update_stream(
                    name="ORDERS", subjects=["orders.*"], duplicate_window=3600
                )
                return connection
    except BaseException:
        await connection.close()
        raise


@contextlib.asynccontextmanager
async def lifespan(app: fastapi.FastAPI) -> AsyncIterator[dict[str, object]]:
    """Connect, and close after the last request. This waits for no server: a worker process that fails to
    start, or is slow to, would end uvicorn with all the others."""
    connecting = asyncio.create_task(connected())
    yield {"connecting": connecting}
    if connecting.cancel():  # it was not connected yet
        await asyncio.wait([connecting])
    else:
        await connecting.result().close()


app = fastapi.FastAPI(lifespan=lifespan)


def connection_of(request: fastapi.Request) -> headrace.Connection:
    """What a path operation depends on; a test may override it."""
    connecting: asyncio.Task[headrace.Connection] = request.state.connecting
    if not connecting.done():
        raise headrace.DisconnectedError("there is no connection yet")
    return connecting.result()


Connection = Annotated[headrace.Connection, fastapi.Depends(connection_of)]


class Order(pydantic.BaseModel):
    customer: str
    item: str


@app.post("/orders", status_code=201)
async def order(
    order: Order,
    connection: Connection,
    idempotency_key: Annotated[str, fastapi.Header()],
) -> dict[str, object]:
    """Answers when the order is stored. Repeated with the same key it is stored once."""
    ack = await connection.jetstream().publish(
        "orders.new", order.model_dump_json().encode(), msg_id=idempotency_key
    )
    return {"number": ack.seq, "again": ack.duplicate}


@app.get("/healthz")
async def healthz() -> str:
    """Whether the process lives. It says nothing of the server: a restart would not bring that back."""
    return "ok"


@app.get("/readyz")
async def readyz(request: fastapi.Request) -> JSONResponse:
    """Whether requests can be served now."""
    try:
        reason = connection_of(request).health().reason
    except headrace.HeadraceError as error:
        reason = str(error)
    return JSONResponse({"ready": not reason, "reason": reason}, 503 if reason else 200)


async def away(request: fastapi.Request, error: Exception) -> JSONResponse:
    """The server is away. What was sent may be stored, what was not will not be: the same key is safe."""
    is_unknown = isinstance(error, headrace.OutcomeUnknownError)
    said = {"error": str(error), "stored": "unknown" if is_unknown else "no"}
    return JSONResponse(said, 503, {"Retry-After": "5"})


for kind in AWAY:
    app.add_exception_handler(kind, away)
