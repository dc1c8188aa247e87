"""The verbs of natsio-pcgroups, asked for on standard input: one JSON line each, answered by one.

``["add_members", "ORDERS", "g", ["a"]]`` calls it with these arguments; what it takes as an object of its own
is given as ``{"mapping": …}`` or ``{"filter": …}`` with the fields of it.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import natsio
from natsio import pcgroups


def made(value: Any) -> Any:
    """An argument of the call: objects are made of what stands for them."""
    if isinstance(value, list):
        return [made(each) for each in value]
    if isinstance(value, dict):
        [(kind, fields)] = value.items()
        return {"mapping": pcgroups.MemberMapping, "filter": pcgroups.PartitioningFilter}[kind](
            **fields
        )
    return value


def told(value: Any) -> Any:
    to_wire = getattr(value, "to_wire", None)
    return to_wire() if to_wire is not None else value


async def serve(url: str) -> None:
    client = await natsio.connect(
        *url.split(","), reconnect_time_wait=0.05, max_reconnect_attempts=-1
    )
    js = client.jetstream()
    try:
        while line := await asyncio.to_thread(sys.stdin.readline):
            verb, *arguments = json.loads(line)
            try:
                answer = {"value": told(await getattr(pcgroups, verb)(js, *map(made, arguments)))}
            except natsio.NATSError as error:
                answer = {"error": f"{type(error).__name__}: {error}"}
            print(json.dumps(answer), flush=True)
    finally:
        await client.close()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
