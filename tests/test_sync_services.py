"""Handlers and services of the blocking client, on threads."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import headrace
import peers
from headrace import NoRespondersError, ServiceError, sync

pytestmark = pytest.mark.peer


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[peers.ServerProcess]:
    server = peers.start_headrace(tmp_path_factory.mktemp("services"))
    yield server
    server.stop()


def test_handlers_that_raise(server: peers.ServerProcess) -> None:
    with sync.connect(server.url) as connection:

        def refuse(message: sync.Message) -> None:
            raise ServiceError(409, "later") if message.payload else KeyError("secret")

        with connection.subscribe("thread", callback=refuse):
            with pytest.raises(ServiceError, match=r"later \(code 409\)"):
                connection.request("thread", b"x", timeout=30)
            with pytest.raises(ServiceError, match=r"KeyError \(code 500\)"):
                connection.request("thread", timeout=30)
        silent = connection.subscribe("thread", callback=refuse, answer_errors=False)
        with silent, pytest.raises(headrace.RequestTimeoutError):
            connection.request("thread", timeout=0.05)


def test_a_service(server: peers.ServerProcess) -> None:
    with sync.connect(server.url) as connection:
        with connection.add_service("calc", version="1.0.0") as service:
            service.add_endpoint("double", lambda message: message.payload * 2)

            def refuse(message: sync.Message) -> None:
                if message.payload:
                    message.respond(b"itself")
                else:
                    raise ServiceError(404, "nothing")

            service.group("maths").add_endpoint("maybe", refuse)
            assert connection.request("double", b"1").payload == b"11"
            assert connection.request("maths.maybe", b"1").payload == b"itself"
            with pytest.raises(ServiceError, match="nothing"):
                connection.request("maths.maybe")
            assert [e.num_errors for e in service.stats().endpoints] == [0, 1]
            assert service.info().endpoints[1].subject == "maths.maybe"
            service.add_endpoint("stop", lambda message: service.stop())
            connection.publish("stop")
            service.stopped()
        with pytest.raises(NoRespondersError):
            connection.request("double")
