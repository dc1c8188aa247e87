"""The functions of the groups for threads, each made of the asyncio one."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

from ...client.blocking.jetstream import JetStream
from ...client.blocking.methods import blocking
from ...client.jetstream_context import JetStream as AioJetStream

__all__ = ["verb"]

P = ParamSpec("P")
R = TypeVar("R")


def verb(
    function: Callable[Concatenate[AioJetStream, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[JetStream, P], R]:
    """A function that is given a context, run on the loop of the context's connection."""
    return blocking(function)
