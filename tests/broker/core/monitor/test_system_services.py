"""What the broker answers about itself, and to whom."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from headrace.broker.core.auth.authentication import User, UserAuthentication
from headrace.broker.core.auth.permissions import Permissions, ResponsePermission
from headrace.broker.core.hub import Hub
from headrace.broker.core.monitor import connections
from headrace.broker.core.options import AccountOptions, JetStreamLimits
from headrace.broker.core.peer import Peer
from headrace.subjects import SubjectFilter
from jetstream_world import Client, World


class Served(World):
    def _start(self) -> None:
        answers = ResponsePermission(2, 1000)
        deny = Permissions(publish_deny=SubjectFilter([b"x"]), responses=answers)
        users = [
            User("ann", "p", deny, account="A"),
            User("bob", "p", account="B"),
            User("admin", "p", account="$SYS"),
        ]
        self.hub = Hub(self.clock, random.Random(1), authenticator=UserAuthentication(users))
        self.hub.configure_accounts(
            [AccountOptions(name="A", jetstream=JetStreamLimits()), AccountOptions(name="B")]
        )
        self.hub.start_jetstream(self.storage, self.options)

    def user(self, name: str) -> Client:
        session = self.hub.connect(Peer("127.0.0.1", 1))
        client = self.clients[session.client_id] = Client(self, session)
        options = {"user": name, "pass": "p", "headers": True, "no_responders": True}
        document = json.dumps({**options, "verbose": False, "pedantic": False})
        client.send(b"CONNECT %b\r\n" % document.encode())
        return client


def ask(client: Client, subject: str, body: Any = None) -> dict[str, Any]:
    payload = b"" if body is None else json.dumps(body).encode()
    (answer,) = client.request(subject.encode(), payload).take()
    document: dict[str, Any] = json.loads(answer.payload)
    return document


def test_everybody_may_ask_who_they_are() -> None:
    served = Served()
    assert ask(served.user("ann"), "$SYS.REQ.USER.INFO")["data"] == {
        "user": "ann",
        "account": "A",
        "account_name": "A",
        "permissions": {"publish": {"deny": ["x"]}, "responses": {"max": 2, "ttl": 1000}},
    }
    assert "permissions" not in ask(served.user("bob"), "$SYS.REQ.USER.INFO")["data"]


def test_the_system_account_is_told_about_the_server() -> None:
    served = Served()
    admin, ann = served.user("admin"), served.user("ann")
    ann.stream()
    ann.subscribe(b"x")
    server_id = served.hub.server_id
    served.hub.about_process = lambda: {"mem": 7, "cores": 2, "cpu": 1.5, "gomaxprocs": 2}
    stats = ask(admin, "$SYS.REQ.SERVER.PING")
    assert [stats["statsz"][name] for name in ("mem", "cores", "cpu")] == [7, 2, 1.5]
    assert ask(admin, "$SYS.REQ.SERVER.PING.VARZ")["data"]["mem"] == 7
    assert stats["server"]["id"] == server_id
    assert stats["statsz"]["connections"] == 2
    for who in ("PING", server_id):
        assert ask(admin, f"$SYS.REQ.SERVER.{who}.VARZ")["data"]["connections"] == 2
    jsz = ask(admin, "$SYS.REQ.SERVER.PING.JSZ", {"streams": True, "account": "A"})["data"]
    (detail,) = jsz["account_details"][0]["stream_detail"]
    assert (detail["name"], detail["cluster"]) == ("S", {"leader": served.hub.server_name})
    assert len(ask(admin, "$SYS.REQ.SERVER.PING.CONNZ", {"acc": "A"})["data"]["connections"]) == 1
    assert ask(admin, "$SYS.REQ.SERVER.PING.HEALTHZ")["data"]["status"] == "ok"
    assert ask(admin, "$SYS.REQ.SERVER.PING.IDZ")["id"] == server_id
    assert "A" in ask(admin, "$SYS.REQ.SERVER.PING.ACCOUNTZ")["data"]["accounts"]
    assert ask(admin, "$SYS.REQ.ACCOUNT.A.INFO")["data"]["account_name"] == "A"
    assert ask(admin, "$SYS.REQ.ACCOUNT.A.CONNZ")["data"]["total"] == 1
    assert ask(admin, "$SYS.REQ.ACCOUNT.A.SUBSZ")["data"]["total"] >= 1
    assert ask(admin, "$SYS.REQ.ACCOUNT.A.CONNS")["conns"] == 1
    (mine,) = ask(admin, "$SYS.REQ.ACCOUNT.PING.STATZ")["data"]["account_statz"][:1]
    assert mine["num_subscriptions"] >= 1
    refused = ask(admin, "$SYS.REQ.SERVER.PING.CONNZ", {"sort": "height"})
    assert (refused["data"], refused["error"]["code"]) == (None, 500)
    assert refused["server"]["id"] == server_id
    assert ask(admin, "$SYS.REQ.ACCOUNT.A.JSZ")["data"]["name"] == "A"
    assert ask(admin, "$SYS.REQ.ACCOUNT.X.INFO")["error"] == {
        "code": 500,
        "description": "Account X does not exist",
    }


@pytest.mark.parametrize(
    ("user", "subject"),
    [
        ("ann", "$SYS.REQ.SERVER.PING"),
        ("ann", "$SYS.REQ.ACCOUNT.A.INFO"),
        ("admin", "$SYS.REQ.SERVER.PING.NOPE"),
        ("admin", "$SYS.REQ.SERVER.OTHER"),
        ("admin", "$SYS.REQ.ACCOUNT.A.NOPE"),
    ],
)
def test_nobody_else_is_told_anything(user: str, subject: str) -> None:
    assert Served().user(user).request(subject.encode()).take()[0].status == "503"


def test_a_question_that_cannot_be_read_is_answered_so() -> None:
    admin = Served().user("admin")
    for body in (b"\xff", b"[1]", b"{bad", b"[" * 100_000):
        for subject in (b"$SYS.REQ.SERVER.PING.CONNZ", b"$SYS.REQ.ACCOUNT.A.INFO"):
            (answer,) = admin.request(subject, body).take()
            document = json.loads(answer.payload)
            assert document["error"]["code"] == 400
            assert "data" not in document
    (answer,) = admin.request(b"$SYS.REQ.SERVER.PING.CONNZ", b'{"limit":"x","acc":3}').take()
    assert json.loads(answer.payload)["data"]["limit"] == 1024


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ({}, True),
        ({"server_name": "il"}, True),
        ({"server_name": "il", "exact_match": True}, False),
        ({"server_name": "mill", "exact_match": True}, True),
        ({"server_name": "nope"}, False),
        ({"host": "127"}, True),
        ({"host": "10.0"}, False),
        ({"cluster": "c"}, False),
        ({"domain": "d"}, False),
        ({"tags": ["t"]}, False),
        ({"unknown": 1}, True),
    ],
)
@pytest.mark.parametrize("page", ["", ".VARZ"])
def test_a_question_to_all_servers_is_answered_by_those_it_means(
    said: dict[str, Any], meant: bool, page: str
) -> None:
    served = Served()
    served.hub.server_name = "mill"
    admin = served.user("admin")
    subject = f"$SYS.REQ.SERVER.PING{page}".encode()
    answers = admin.request(subject, json.dumps(said).encode()).take()
    assert len(answers) == (1 if meant else 0)
    ours = f"$SYS.REQ.SERVER.{served.hub.server_id}{page}".encode()
    assert len(admin.request(ours, json.dumps(said).encode()).take()) == 1


@pytest.mark.parametrize(
    ("asked", "code", "error"),
    [
        ({}, 200, None),
        ({"js-enabled-only": True}, 200, None),
        ({"account": "A", "stream": "S", "consumer": "D"}, 200, None),
        ({"stream": "S"}, 400, '"account" must not be empty when checking stream health'),
        ({"consumer": "D"}, 400, '"stream" must not be empty when checking consumer health'),
        ({"account": "X"}, 404, 'JetStream account "X" not found'),
        ({"account": "B", "stream": "S"}, 404, 'JetStream account "B" not found'),
        ({"account": "A", "stream": "N"}, 404, 'JetStream stream "N" not found on account "A"'),
        (
            {"account": "A", "stream": "S", "consumer": "N"},
            404,
            'JetStream consumer "N" not found for stream "S" on account "A"',
        ),
    ],
)
def test_health_is_asked_of_accounts_streams_and_consumers(
    asked: dict[str, Any], code: int, error: str | None
) -> None:
    served = Served()
    admin, ann = served.user("admin"), served.user("ann")
    ann.stream()
    config = {"durable_name": "D", "ack_policy": "explicit"}
    ann.request(
        b"$JS.API.CONSUMER.CREATE.S.D", json.dumps({"stream_name": "S", "config": config}).encode()
    )
    data = ask(admin, "$SYS.REQ.SERVER.PING.HEALTHZ", asked)["data"]
    assert (data["status_code"], data.get("error")) == (code, error)
    if code == 404:
        detailed = ask(admin, "$SYS.REQ.SERVER.PING.HEALTHZ", {**asked, "details": True})["data"]
        assert [record["error"] for record in detailed["errors"]] == [error]
        assert detailed["errors"][0]["account"] == asked["account"]


def test_subscriptions_are_listed_by_pages_and_by_what_they_hear() -> None:
    served = Served()
    admin, ann, bob = served.user("admin"), served.user("ann"), served.user("bob")
    for number in range(10):
        ann.subscribe(b"foo.%d" % number)
    ann.subscribe(b"foo.*")
    bob.subscribe(b"foo.3")

    def listed(**said: Any) -> tuple[int, list[str]]:
        data = ask(admin, "$SYS.REQ.SERVER.PING.SUBSZ", {"subscriptions": True, **said})["data"]
        return data["total"], [found["subject"] for found in data["subscriptions_list"]]

    total, page = listed(account="A", limit=4, offset=2)
    assert total == len(ann.session.subscriptions)
    everything = listed(account="A")[1]
    assert len(everything) == total
    assert page == everything[2:6]
    assert listed(test="foo.3") == (3, ["foo.3", "foo.*", "foo.3"])
    assert listed(test="foo.3", account="A", offset=1) == (2, ["foo.*"])
    refused = ask(admin, "$SYS.REQ.SERVER.PING.SUBSZ", {"test": "foo.*"})["error"]
    assert refused["description"].endswith("must be valid publish subject: foo.*")


def test_connections_that_ended_are_remembered() -> None:
    served = Served()
    admin, ann = served.user("admin"), served.user("ann")
    ann.publish(b"x.y", b"12345")
    ann.session.close("Stale Connection")
    served.tick()

    def connections(**said: Any) -> list[dict[str, Any]]:
        found = ask(admin, "$SYS.REQ.SERVER.PING.CONNZ", said)["data"]["connections"]
        return [each for each in found if each["account"] != "$SYS"]

    assert connections() == []
    (gone,) = connections(state=1)
    assert (gone["reason"], gone["in_msgs"], gone["account"]) == ("Stale Connection", 1, "A")
    assert gone["stop"] >= gone["start"]
    served.user("ann")
    assert len(connections(state=2, acc="A")) == 2
    assert len(connections(state=1, user="ann", sort="stop")) == 1
    assert len(connections(state=1, cid=gone["cid"], sort="reason")) == 1
    for sort in ("cid", "start", "subs", "pending", "msgs_to", "bytes_to", "bytes_from", "rtt"):
        assert len(connections(state=2, acc="A", sort=sort)) == 2
    refused = ask(admin, "$SYS.REQ.SERVER.PING.CONNZ", {"sort": "stop"})["error"]
    assert refused["description"] == "sort by stop only valid on closed connections"


def test_only_the_newest_connections_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "ENDED_MAX", 3)
    served = Served()
    ended = [served.user("ann") for _ in range(5)]
    for client in ended:
        client.session.close("")
    remembered = [record.client_id for record in served.hub.ended_connections]
    assert remembered == [client.session.client_id for client in ended[2:]]


def test_connections_are_found_by_what_they_listen_to() -> None:
    served = Served()
    admin, ann = served.user("admin"), served.user("ann")
    served.user("ann")
    ann.subscribe(b"foo.>")
    found = ask(admin, "$SYS.REQ.SERVER.PING.CONNZ", {"filter_subject": "*.bar"})["data"]
    assert [each["cid"] for each in found["connections"]] == [ann.session.client_id]


def test_another_system_account_takes_over_while_serving() -> None:
    served = Served()
    bob = served.user("bob")
    assert bob.request(b"$SYS.REQ.SERVER.PING").take()[0].status == "503"
    served.hub.configure_accounts([AccountOptions(name="B")], "B")
    assert "statsz" in ask(bob, "$SYS.REQ.SERVER.PING")


def test_the_system_account_hears_who_comes_and_who_goes() -> None:
    served = Served()
    admin = served.user("admin")
    heard = admin.subscribe(b"$SYS.ACCOUNT.>")
    ann = served.user("ann")
    ann.publish(b"a", b"12345")
    ann.send(b'CONNECT {"user":"ann","pass":"p","verbose":false}\r\n')  # says it again
    ann.session.close("Client Closed")
    served.tick()
    messages = [(m.subject.decode(), json.loads(m.payload)) for m in heard.take()]
    assert [subject for subject, _ in messages] == [
        "$SYS.ACCOUNT.A.SERVER.CONNS",
        "$SYS.ACCOUNT.A.CONNECT",
        "$SYS.ACCOUNT.A.SERVER.CONNS",
        "$SYS.ACCOUNT.A.DISCONNECT",
    ]
    assert [messages[n][1]["conns"] for n in (0, 2)] == [1, 0]
    connect, disconnect = messages[1][1], messages[3][1]
    assert connect["type"] == "io.nats.server.advisory.v1.client_connect"
    assert connect["client"]["user"] == "ann"
    assert connect["server"]["id"] == served.hub.server_id
    assert disconnect["client"]["stop"]
    assert disconnect["received"]["msgs"] == 1
    assert disconnect["reason"] == "Client Closed"


def test_the_system_account_hears_who_was_not_let_in() -> None:
    served = Served()
    heard = served.user("admin").subscribe(b"$SYS.SERVER.*.CLIENT.AUTH.ERR")
    served.user("stranger")
    (message,) = heard.take()
    assert json.loads(message.payload)["reason"] == "Authentication Failure"
    served.hub.connect(Peer()).close("Client Closed")  # said nothing at all
    assert heard.take() == []


def test_nobody_else_hears_of_clients() -> None:
    served = Served()
    heard = served.user("ann").subscribe(b"$SYS.>")
    served.user("bob").session.close("Client Closed")
    served.tick()
    assert heard.take() == []
