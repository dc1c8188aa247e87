"""What the API is handed: the streams of its account, and what can be done to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

from .....api.consumers import ConsumerConfig
from .....api.errors import Errors
from .....api.streams import StreamConfig
from ..config.refused import Refused
from ..consumer.consumer import Consumer
from ..stream.stream import Stream

T = TypeVar("T")


class Usage(NamedTuple):
    """What all streams use together, in bytes, and how many consumers there are."""

    memory_bytes: int
    storage_bytes: int
    reserved_memory_bytes: int
    reserved_storage_bytes: int
    consumers: int


class LostAssets(Protocol):
    """Streams that are on the disk and cannot be served."""

    @property
    def reasons(self) -> Mapping[str, str]:
        """Why not, by name."""


class Assets(Protocol):
    """The streams and consumers of an account; see ``engine.registry.Registry``.

    Changes are journaled; what cannot be raises StoreError.
    """

    @property
    def streams(self) -> Mapping[str, Stream]: ...
    @property
    def lost(self) -> LostAssets: ...
    def create_stream(self, config: StreamConfig) -> Stream: ...
    def adopt_stream(self, config: StreamConfig) -> Stream: ...
    def update_stream(self, stream: Stream, config: StreamConfig) -> None: ...
    def delete_stream(self, stream: Stream) -> None: ...
    def drop_lost(self, name: str) -> None: ...
    def create_consumer(self, stream: Stream, name: str, config: ConsumerConfig) -> Consumer: ...
    def restart_consumer(self, consumer: Consumer, sequence: int) -> None: ...
    def journal_consumer(self, consumer: Consumer) -> None: ...
    def delete_consumer(self, consumer: Consumer) -> None: ...
    def mirror_of(self, name: str) -> Stream | None: ...
    def usage(self) -> Usage: ...


def page_of(found: Sequence[T], offset: int, size: int) -> tuple[Sequence[T], dict[str, int]]:
    """One page of what was found, and what its answer says of the place."""
    start = min(max(offset, 0), len(found))
    return found[start : start + size], {"total": len(found), "offset": start, "limit": size}


def stream_of(assets: Assets, name: str) -> Stream:
    """The stream of this name. Raises Refused."""
    stream = assets.streams.get(name)
    if stream is None:
        raise Refused(Errors.STREAM_NOT_FOUND)
    return stream
