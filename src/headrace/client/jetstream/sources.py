"""Where a stream copies from, as the server is told."""

from __future__ import annotations

import msgspec

from ...api.streams import ExternalStream, StreamConfig, StreamSource

__all__ = ["with_external_domains"]


def with_external_domains(config: StreamConfig) -> StreamConfig:
    """The configuration with each source's ``domain``, which clients speak of, as the API prefix that
    servers know."""
    sources = tuple(_external(source) for source in config.sources)
    mirror = None if config.mirror is None else _external(config.mirror)
    if sources == config.sources and mirror == config.mirror:
        return config
    return msgspec.structs.replace(config, sources=sources, mirror=mirror)


def _external(source: StreamSource) -> StreamSource:
    if not source.domain:
        return source
    deliver = source.external.deliver if source.external is not None else ""
    external = ExternalStream(api=f"$JS.{source.domain}.API", deliver=deliver)
    return msgspec.structs.replace(source, domain="", external=external)
