"""What servers say of a pipeline: whether its streams are there, and its users may do what it needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from ...documents import read_json
from ...errors import AuthorizationError, ConnectFailedError, HeadraceError, RequestTimeoutError
from ...spark.links.link import Link
from ...spark.options import Connection
from ...subjects import matches
from ..model import Declared
from ..problems import Problem, Unasked
from .options import check_options
from .uses import Use, ours, use_of

CONNECT_S: Final = 0.7
"""How long a server may take to answer: the whole check is to take less than a second."""

_USER_INFO: Final = "$SYS.REQ.USER.INFO"


def check(declared: Declared) -> tuple[list[Problem], list[str]]:
    """Everything that needs no Spark: problems, and what was found in order, as sentences."""
    problems = check_options(declared)
    if problems:
        return problems, []
    found: list[str] = []
    for connection, uses in _by_connection(declared).items():
        said, fine = _check_server(connection, uses)
        problems += said
        found += fine
    return problems, found


def _by_connection(declared: Declared) -> dict[Connection, list[Use]]:
    """What uses each server."""
    grouped: dict[Connection, list[Use]] = {}
    for each in ours(declared):
        use = use_of(declared, each)
        grouped.setdefault(use.connection, []).append(use)
    return grouped


def _check_server(connection: Connection, uses: list[Use]) -> tuple[list[Problem], list[str]]:
    quick = replace(connection, connect_timeout_s=CONNECT_S, request_timeout_s=CONNECT_S)
    try:
        link = Link.open(quick)
    except (ConnectFailedError, AuthorizationError, RequestTimeoutError) as error:
        return [Unasked(*uses[0].problem(str(error)))], []
    except HeadraceError as error:
        return [uses[0].problem(str(error))], []
    problems: list[Problem] = []
    found: list[str] = []
    try:
        try:
            may_publish = _permissions(link)
        except AuthorizationError:
            may_publish = None  # it may not even ask; what follows shows the rest
            link = Link.open(quick)
        for use in uses:
            refused = [each for each in use.publishes if may_publish and not may_publish(each)]
            if refused:
                problems.append(Problem(use.place, _refusal(use, refused)))
                continue
            try:
                found += use.look(link)
            except RequestTimeoutError as error:
                problems.append(Unasked(*use.problem(str(error))))
            except HeadraceError as error:
                problems.append(use.problem(str(error)))
                if link.closed:
                    break
    finally:
        link.close()
    return problems, found


def _refusal(use: Use, refused: list[str]) -> str:
    user = use.connection.user
    who = f"user {user!r}" if user else "this user"
    return f"{who} may not publish to {', '.join(refused)}, which {use.what} needs"


class _Rights:
    """What a user may publish to."""

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self._allow: list[str] | None = raw.get("allow")
        self._deny: list[str] = raw.get("deny") or []

    def __call__(self, subject: str) -> bool:
        allowed = self._allow is None or _any(self._allow, subject)
        return allowed and not _any(self._deny, subject)


def _any(patterns: Iterable[str], subject: str) -> bool:
    return any(matches(pattern.encode(), subject.encode()) for pattern in patterns)


def _permissions(link: Link) -> _Rights | None:
    """What the user may publish to; None where the server does not tell.

    Raises:
        AuthorizationError: the user may not ask; the link is closed.
    """
    try:
        answer = read_json(link.request(_USER_INFO).payload)
    except AuthorizationError:
        raise
    except (HeadraceError, ValueError):
        return None
    publish = answer.get("data", {}).get("permissions", {}).get("publish")
    return _Rights(publish) if publish else None
