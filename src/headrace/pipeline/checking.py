"""What can be said of a pipeline without Spark: options, and what servers say of streams and rights."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from ..errors import AuthorizationError, ConfigurationError, HeadraceError
from ..spark.control import Control
from ..spark.link import Link
from ..spark.options import Connection, SourceOptions, parse_options
from ..subjects import matches
from .model import Declared, Source
from .problems import Place, Problem

__all__ = ["JETSTREAM", "check", "check_options", "source_options"]

JETSTREAM: Final = "jetstream"
CONNECT_S: Final = 0.7
"""How long a server may take to answer: the whole check is to take less than a second."""

_QUOTED: Final = re.compile(r"option '([^']+)'|'([^']+)'")
_WHO: Final = re.compile(r"^jetstream (?:source|sink): ")
_USER_INFO: Final = "$SYS.REQ.USER.INFO"


class Options:
    """The lines of options, for problems that a parser has found in them."""

    def __init__(self, lines: Mapping[str, Place], place: Place) -> None:
        self._lines = {name.lower(): at for name, at in lines.items()}
        self._place = place

    def problem(self, text: str) -> Problem:
        """The problem, in the line of the option that its text names."""
        found = _QUOTED.search(text)
        name = (found[1] or found[2]).lower() if found else ""
        return Problem(self._lines.get(name, self._place), _WHO.sub("", text))


def check(declared: Declared) -> tuple[list[Problem], list[str]]:
    """Everything that needs no Spark: problems, and what was found in order, as sentences."""
    problems = check_options(declared)
    if problems:
        return problems, []
    found: list[str] = []
    for connection, sources in _by_connection(declared).items():
        said, fine = _check_server(connection, sources)
        problems += said
        found += fine
    return problems, found


def check_options(declared: Declared) -> list[Problem]:
    """The options of our own sources."""
    problems = []
    for source in declared.sources.values():
        if source.format == JETSTREAM:
            try:
                source_options(source)
            except ConfigurationError as error:
                problems.append(Options(source.lines, source.place).problem(str(error)))
    return problems


def source_options(source: Source) -> SourceOptions:
    """The parsed options of a jetstream source. Raises ConfigurationError."""
    return parse_options(source.options, streaming=source.streaming)


def _by_connection(
    declared: Declared,
) -> dict[Connection, list[tuple[Source, SourceOptions]]]:
    """The jetstream sources of each server."""
    grouped: dict[Connection, list[tuple[Source, SourceOptions]]] = {}
    for source in declared.sources.values():
        if source.format == JETSTREAM:
            options = source_options(source)
            grouped.setdefault(options.connection, []).append((source, options))
    return grouped


def _check_server(
    connection: Connection, sources: list[tuple[Source, SourceOptions]]
) -> tuple[list[Problem], list[str]]:
    quick = replace(connection, connect_timeout_s=CONNECT_S, request_timeout_s=CONNECT_S)
    first = sources[0][0]
    try:
        link = Link.open(quick)
    except HeadraceError as error:
        return [Problem(first.place, str(error))], []
    try:
        may_publish = _permissions(link)
    except AuthorizationError:
        may_publish = None  # it may not even ask; what follows shows the rest
        link = Link.open(quick)
    problems: list[Problem] = []
    found: list[str] = []
    try:
        for source, options in sources:
            refused = [
                subject
                for subject in _needed(options)
                if may_publish is not None and not may_publish(subject)
            ]
            if refused:
                problems.append(Problem(source.place, _refusal(options, refused)))
                continue
            try:
                for stream in options.streams:
                    state = Control(link, stream).stream_info().state
                    found.append(f"stream {stream} has {state.messages:,} messages")
            except HeadraceError as error:
                problems.append(Options(source.lines, source.place).problem(str(error)))
                if link.closed:
                    break
    finally:
        link.close()
    return problems, found


def _refusal(options: SourceOptions, refused: list[str]) -> str:
    user = options.connection.user
    who = f"user {user!r}" if user else "this user"
    streams = ", ".join(options.streams)
    return f"{who} may not publish to {', '.join(refused)}, which reading {streams} needs"


def _needed(options: SourceOptions) -> Iterator[str]:
    """The subjects that a query must be allowed to publish to."""
    api = options.connection.api_prefix
    for stream in options.streams:
        yield f"{api}.STREAM.INFO.{stream}"
        yield f"{api}.CONSUMER.CREATE.{stream}"
        yield f"{api}.CONSUMER.MSG.NEXT.{stream}.x"
        if options.durable:
            yield f"{api}.CONSUMER.CREATE.{stream}.{options.durable}"
            yield f"{api}.CONSUMER.INFO.{stream}.{options.durable}"


class _Rights:
    """What a user may publish to."""

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self._allow: list[str] | None = raw.get("allow")
        self._deny: list[str] = raw.get("deny") or []

    def __call__(self, subject: str) -> bool:
        return (self._allow is None or _any(self._allow, subject)) and not _any(self._deny, subject)


def _any(patterns: Iterable[str], subject: str) -> bool:
    return any(matches(pattern.encode(), subject.encode()) for pattern in patterns)


def _permissions(link: Link) -> _Rights | None:
    """What the user may publish to; None where the server does not tell."""
    try:
        answer = json.loads(link.request(_USER_INFO).payload)
    except AuthorizationError:
        raise
    except (HeadraceError, ValueError):
        return None
    publish = answer.get("data", {}).get("permissions", {}).get("publish")
    return _Rights(publish) if publish else None
