"""How an endpoint answers: how many calls, how many of them failed, how long they took, over the last day."""

from __future__ import annotations

from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ... import limits
from ...models import rfc3339
from ...runtime.runtime import Runtime
from ...service.definitions import consumers
from ...service.push import call_statistics
from ...store import Tx
from ..request.endpoint import Endpoint, Parameter, reply
from ..request.incoming import number_between, require_admin

__all__ = ["ENDPOINTS"]


class CallSlot(msgspec.Struct):
    at: str
    calls: int
    failed: int
    p50_seconds: float
    p95_seconds: float


class Calls(msgspec.Struct):
    slot_seconds: int
    slots: list[CallSlot]


async def list_calls(runtime: Runtime, request: Request) -> Response:
    require_admin(runtime, request)
    path, most = request.path_params, limits.CALLS_KEPT_S
    seconds = number_between(request.query_params.get("seconds"), most, 1, most, "seconds")

    def read(tx: Tx) -> list[call_statistics.Slot]:
        consumer = consumers.find_consumer(tx, path["channelId"], path["consumerId"])
        return call_statistics.slots_of(tx, consumer.seq, seconds)

    shown = [
        CallSlot(rfc3339(slot.at_us), slot.calls, slot.failed, slot.p50_s, slot.p95_s)
        for slot in await runtime.database.read(read)
    ]
    return reply(Calls(limits.CALLS_SLOT_S, shown))


ENDPOINTS: Final = (
    Endpoint(
        method="GET",
        path="/v2/channel/{channelId}/consumer/{consumerId}/calls",
        handler=list_calls,
        summary="How an endpoint answered lately: calls, failures, and how long they took",
        answers={200: Calls},
        parameters=(
            Parameter("seconds", "of the last so many; a day, if not given", type="integer"),
        ),
        tag="consumers",
        admin=True,
        legacy=False,
        errors=(400, 401, 403, 404),
    ),
)
