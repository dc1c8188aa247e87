"""What services say of themselves on ``$SRV.PING``, ``$SRV.INFO`` and ``$SRV.STATS``, and how they are named.

Names and types are those of the other clients (ADR-32).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from ...errors import ConfigurationError
from ...subjects import check_pattern, check_subject

PREFIX: Final = "$SRV"
QUEUE_DEFAULT: Final = "q"

Verb = Literal["PING", "INFO", "STATS"]

_TYPE: Final = "io.nats.micro.v1.{}_response"
_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")
_VERSION: Final = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(-(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*)?"
    r"(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?"
)


class EndpointInfo(msgspec.Struct, frozen=True, kw_only=True):
    """An endpoint: its name, its subject, its queue group ("" is none), its metadata."""

    name: str
    subject: str
    queue_group: str
    metadata: dict[str, str] = {}


class EndpointStats(msgspec.Struct, frozen=True, kw_only=True):
    """What an endpoint has done since it began, or since ``reset``; times are nanoseconds."""

    name: str
    subject: str
    queue_group: str
    num_requests: int
    num_errors: int
    last_error: str
    processing_time: int
    average_processing_time: int
    data: Any = None


class ServiceInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One instance of a service, and its endpoints."""

    name: str
    id: str
    version: str
    metadata: dict[str, str]
    description: str
    endpoints: list[EndpointInfo]


class ServiceStats(msgspec.Struct, frozen=True, kw_only=True):
    """What the endpoints of one instance have done since ``started`` (RFC 3339)."""

    name: str
    id: str
    version: str
    metadata: dict[str, str]
    started: str
    endpoints: list[EndpointStats]


def answer(verb: Verb, document: Mapping[str, Any]) -> bytes:
    """The answer to a question on a control subject."""
    return msgspec.json.encode({"type": _TYPE.format(verb.lower()), **document})


def control_subjects(verb: Verb, name: str, instance: str) -> tuple[str, str, str]:
    """Where a question is asked: of all services, of all instances of one, and of one instance."""
    return (f"{PREFIX}.{verb}", f"{PREFIX}.{verb}.{name}", f"{PREFIX}.{verb}.{name}.{instance}")


def checked_name(what: str, name: str) -> str:
    """A name of a service or an endpoint. Raises ConfigurationError."""
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise ConfigurationError(f"{what} {name!r}: accepted are letters, digits, '-' and '_'")
    return name


def checked_version(version: str) -> str:
    """A semantic version. Raises ConfigurationError."""
    if not isinstance(version, str) or _VERSION.fullmatch(version) is None:
        raise ConfigurationError(f"version {version!r}: accepted is a semantic version, as 1.0.0")
    return version


def checked_subject(subject: str) -> str:
    """The subject of an endpoint, which may have wildcards. Raises InvalidSubjectError."""
    check_pattern(subject.encode())
    return subject


def checked_queue(queue: str | None, inherited: str | None) -> str | None:
    """A queue group: its own, or with "" the inherited one; None is none. Raises InvalidSubjectError."""
    if queue == "":
        return inherited
    if queue is not None:
        check_subject(queue.encode())
    return queue
