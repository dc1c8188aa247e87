"""What the broker answers about itself, and to whom."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from headrace.broker.core.account_options import AccountOptions, JetStreamLimits
from headrace.broker.core.auth import User, UserAuthentication
from headrace.broker.core.hub import Hub
from headrace.broker.core.permissions import Permissions, ResponsePermission
from headrace.broker.core.session import Peer
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
    stats = ask(admin, "$SYS.REQ.SERVER.PING")
    assert stats["server"]["id"] == server_id
    assert stats["statsz"]["connections"] == 2
    for who in ("PING", server_id):
        assert ask(admin, f"$SYS.REQ.SERVER.{who}.VARZ")["data"]["connections"] == 2
    jsz = ask(admin, "$SYS.REQ.SERVER.PING.JSZ", {"streams": True, "account": "A"})["data"]
    assert jsz["account_details"][0]["stream_detail"][0]["name"] == "S"
    assert len(ask(admin, "$SYS.REQ.SERVER.PING.CONNZ", {"acc": "A"})["data"]["connections"]) == 1
    assert ask(admin, "$SYS.REQ.SERVER.PING.HEALTHZ")["data"]["status"] == "ok"
    assert ask(admin, "$SYS.REQ.SERVER.PING.IDZ")["data"]["id"] == server_id
    assert "A" in ask(admin, "$SYS.REQ.SERVER.PING.ACCOUNTZ")["data"]["accounts"]
    assert ask(admin, "$SYS.REQ.ACCOUNT.A.INFO")["data"]["account_detail"]["account_name"] == "A"
    assert ask(admin, "$SYS.REQ.ACCOUNT.A.CONNZ")["data"]["total"] == 1
    assert ask(admin, "$SYS.REQ.ACCOUNT.A.SUBSZ")["data"]["total"] >= 1
    assert ask(admin, "$SYS.REQ.ACCOUNT.A.CONNS")["data"]["conns"] == 1
    (mine,) = ask(admin, "$SYS.REQ.ACCOUNT.PING.STATZ")["data"]["account_statz"][:1]
    assert mine["num_subscriptions"] >= 1
    refused = ask(admin, "$SYS.REQ.SERVER.PING.CONNZ", {"sort": "height"})
    assert refused["error"]["code"] == 400
    assert ask(admin, "$SYS.REQ.ACCOUNT.A.JSZ")["data"]["streams"] == 1


@pytest.mark.parametrize(
    ("user", "subject"),
    [
        ("ann", "$SYS.REQ.SERVER.PING"),
        ("ann", "$SYS.REQ.ACCOUNT.A.INFO"),
        ("admin", "$SYS.REQ.SERVER.PING.NOPE"),
        ("admin", "$SYS.REQ.SERVER.OTHER"),
        ("admin", "$SYS.REQ.ACCOUNT.X.INFO"),
        ("admin", "$SYS.REQ.ACCOUNT.A.NOPE"),
    ],
)
def test_nobody_else_is_told_anything(user: str, subject: str) -> None:
    assert Served().user(user).request(subject.encode()).take()[0].status == "503"


def test_a_question_that_cannot_be_read_asks_for_nothing_special() -> None:
    admin = Served().user("admin")
    for body in (b"\xff", b"[1]", b'{"limit":"x","acc":3}', b"[" * 100_000):
        assert admin.request(b"$SYS.REQ.SERVER.PING.CONNZ", body).take()[0].payload


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
