"""The blocking clients are those of asyncio in all but ``async``: arguments, types, documentation.

Here is compared what Python says of both.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import blocking_words
import headrace
from blocking_words import ProblemError
from headrace import groups, sync
from headrace.client.blocking import consumer
from headrace.groups import exactly_once as once
from headrace.jobs.client import AsyncJobsClient, BlockingWorker, JobsClient, Worker
from headrace.jobs.client import aio as jobs_aio
from headrace.jobs.client import blocking as jobs_blocking
from headrace.sync import groups as sync_groups
from headrace.sync.groups import exactly_once as sync_once

RENAMED = {
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
}
ITS_OWN = {"start", "end", "of", "connection_lost", "connection_restored", "connection_closed"}
OTHER_TYPES = [  # what a type is called without ``async``
    (r"\bAsyncIterator\b", "Iterator"),
    (r"\bCoroutine\[Any, Any, (\w+)\]", r"\1"),
    (r"\bConnecting\b", "Connection"),
    (r"\bBlockingConnection\b", "Connection"),
    (r"\bAsyncJobsClient\b", "JobsClient"),
    (r"\bAsyncBaseTransport\b", "BaseTransport"),
    (r"\bblocking\.Queue\b", "Queue"),
    (r"\bMessageCallback\b", "Callable[[JetStreamMessage], object]"),
]


def twins() -> Iterator[tuple[Any, Any]]:
    """The public classes of ``headrace.sync``, those they return, and the asyncio classes."""
    names = [*(name for name in sync.__all__ if name != "Broker"), "OrderedConsumption"]
    for name in names:
        twin = getattr(sync, name, None) or getattr(consumer, name)
        inner = inspect.get_annotations(twin).get("_inner") if isinstance(twin, type) else None
        if inner is None:
            yield getattr(headrace, name), twin
        else:
            yield vars(importlib.import_module(twin.__module__))[inner.partition("[")[0]], twin


MADE_BY_USERS = {AsyncJobsClient, JobsClient, Worker, BlockingWorker}
GROUPS_OF_THREADS = {"GroupMessage", "Membership", "elastic", "static"}
TWINS = [
    *twins(),
    (AsyncJobsClient, JobsClient),
    (jobs_aio.Queue, jobs_blocking.Queue),
    (Worker, BlockingWorker),
    (groups.Membership, sync_groups.Membership),
    (groups.GroupMessage, sync_groups.GroupMessage),
    *((getattr(once, n), getattr(sync_once, n)) for n in once.__all__),
    *((getattr(groups.static, n), getattr(sync_groups.static, n)) for n in groups.static.__all__),
    *(
        (getattr(groups.elastic, n), getattr(sync_groups.elastic, n))
        for n in groups.elastic.__all__
    ),
]


def members(kind: type) -> dict[str, Any]:
    """The public methods and properties of a class, and the protocols it has."""
    found = {}
    for name in dir(kind):
        member = inspect.getattr_static(kind, name)
        made = name == "__init__" and kind in MADE_BY_USERS
        if made or (not name.startswith("_") and name not in ITS_OWN) or name in RENAMED:
            found[name] = member
    return found


def function_of(member: Any) -> Callable[..., Any] | None:
    return member.fget if isinstance(member, property) else member if callable(member) else None


def types_of(function: Callable[..., Any]) -> list[tuple[object, ...]]:
    """Names, kinds, defaults and types of the arguments, and the type of the result."""
    signature = inspect.signature(function)
    rows: list[tuple[object, ...]] = [
        (each.name, each.kind, each.default, plainly(each.annotation))
        for each in signature.parameters.values()
    ]
    return [*rows, (plainly(signature.return_annotation),)]


def plainly(annotation: object) -> str:
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    for pattern, other in OTHER_TYPES:
        text = re.sub(pattern, other, text)
    return ast.unparse(ast.parse(text))


def said_of(thing: Any) -> str:
    return " ".join((inspect.getdoc(thing) or "").split())


def adapted(text: str, where: str) -> str:
    return " ".join(blocking_words.adapted(inspect.cleandoc(text), where).split())


@pytest.mark.parametrize(("aio", "twin"), TWINS, ids=lambda kind: kind.__name__)
def test_a_twin_has_the_same_members_arguments_types_and_words(aio: Any, twin: Any) -> None:
    assert said_of(twin) == adapted(inspect.getdoc(aio) or "", aio.__name__)
    if not isinstance(aio, type):
        assert types_of(twin) == types_of(aio)
        return
    for name, member in members(aio).items():
        other = inspect.getattr_static(twin, RENAMED.get(name, name), None)
        where = f"{twin.__name__}.{name}"
        assert other is not None, f"there is no {where}"
        ours, theirs = function_of(member), function_of(other)
        if ours is None or theirs is None:
            assert theirs is None or isinstance(other, property), where
            continue
        assert types_of(theirs) == types_of(ours), where
        owner = next(each for each in aio.__mro__ if name in vars(each)).__name__
        if ours.__doc__:
            assert said_of(other) == adapted(inspect.getdoc(member) or "", f"{owner}.{name}"), where


@pytest.mark.parametrize(("aio", "twin"), TWINS, ids=lambda kind: kind.__name__)
def test_a_twin_has_no_more_than_the_asyncio_class(aio: Any, twin: Any) -> None:
    if not isinstance(aio, type):
        return
    made = inspect.getsource(vars(aio)["__init__"]) if "__init__" in vars(aio) else ""
    attributes = set(re.findall(r"self\.([a-z]\w*)\b", made)) | set(inspect.get_annotations(aio))
    inherited = {n for base in aio.__mro__ for n in vars(base)} | attributes
    inherited |= {RENAMED.get(name, name) for name in inherited}
    for base in aio.__mro__[1:]:
        if base.__module__.startswith("headrace") and "__init__" in vars(base):
            inherited |= set(
                re.findall(r"self\.([a-z]\w*)\b", inspect.getsource(vars(base)["__init__"]))
            )
    assert not [name for name in members(twin) if name not in inherited]


def test_the_groups_for_threads_have_every_name() -> None:
    assert sync_groups.__all__ == groups.__all__
    for name in groups.__all__:
        theirs = getattr(sync_groups, name)
        assert (theirs is getattr(groups, name)) == (name not in GROUPS_OF_THREADS), name
    assert sync_groups.static.__all__ == groups.static.__all__
    assert sync_groups.elastic.__all__ == groups.elastic.__all__
    assert sync.groups is sync_groups


def test_the_blocking_broker_has_what_users_of_the_asyncio_one_have() -> None:
    for name, member in members(headrace.Broker).items():
        if name in RENAMED or name in {"accept", "hub"}:  # for what runs in the broker's own loop
            continue
        other = inspect.getattr_static(sync.Broker, name, None)
        ours, theirs = function_of(member), function_of(other)
        assert (ours is None) == (theirs is None), name
        if ours is not None and theirs is not None:
            assert types_of(theirs) == types_of(ours), name


def test_words_that_nobody_adapted_are_refused() -> None:
    text = "Wait: ``async with await a.b() as c: async for d in c``."
    assert blocking_words.adapted(text, "A.b") == "Wait: ``with a.b() as c: for d in c``."
    with pytest.raises(ProblemError, match=r"A\.b says 'coroutine'"):
        blocking_words.adapted("Give it a coroutine function.", "A.b")


def test_a_sentence_that_is_gone_is_missed() -> None:
    with pytest.raises(ProblemError, match=r"Publisher does not say 'Not thread-safe"):
        blocking_words.adapted("Sends.", "Publisher")
