"""Accounts see nothing of each other but what they export and import."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from headrace.api.base import decode
from headrace.api.messages import AccountInfo
from headrace.api.times import format_time
from headrace.broker.core.auth.authentication import User, UserAuthentication
from headrace.broker.core.hub import Hub
from headrace.broker.core.options import (
    AccountOptions,
    Export,
    Import,
    JetStreamLimits,
    check_accounts,
)
from headrace.broker.core.peer import Peer
from headrace.broker.store import FileStorage, MemoryStorage
from headrace.clock import ManualClock
from headrace.errors import ConfigurationError, StoreFullError
from jetstream_world import Client, HeldStorage, World

STREAMS = JetStreamLimits()


class Accounts(World):
    """A world of the accounts A, B, …, with one user of the same name each."""

    def __init__(self, *accounts: AccountOptions, storage: Any = None) -> None:
        self.accounts = accounts
        super().__init__(storage)

    def _start(self) -> None:
        users = [User(a.name, "p", account=a.name) for a in self.accounts]
        self.hub = Hub(self.clock, random.Random(1), authenticator=UserAuthentication(users))
        self.hub.configure_accounts(self.accounts)
        self.hub.start_jetstream(self.storage, self.options)

    def user(self, name: str) -> Client:
        session = self.hub.connect(Peer())
        client = self.clients[session.client_id] = Client(self, session)
        options = {"user": name, "pass": "p", "headers": True, "no_responders": True}
        document = json.dumps({**options, "verbose": False, "pedantic": False})
        client.send(b"CONNECT %b\r\n" % document.encode())
        return client


def test_the_same_subject_and_the_same_stream_are_two_things_in_two_accounts() -> None:
    world = Accounts(
        AccountOptions(name="A", jetstream=STREAMS), AccountOptions(name="B", jetstream=STREAMS)
    )
    a, b = world.user("A"), world.user("B")
    heard = b.subscribe(b"news")
    a.publish(b"news", b"x")
    assert heard.take() == []
    assert a.stream()["did_create"]
    assert b.stream(max_msgs=7)["did_create"]
    assert a.put(b"s.1", b"of A")["seq"] == 1
    assert b.api("STREAM.INFO.S")["state"]["messages"] == 0
    assert a.api("STREAM.INFO.S")["state"]["messages"] == 1
    assert b.put(b"s.1", b"of B")["seq"] == 1
    b.consumer()
    assert b.pull().take()[0].payload == b"of B"


def test_accounts_share_a_store_and_find_their_own_in_it_again(tmp_path: Path) -> None:
    def storage() -> FileStorage:
        return FileStorage(tmp_path, threaded=False)

    world = Accounts(
        AccountOptions(name="$G", jetstream=STREAMS),
        AccountOptions(name="A", jetstream=STREAMS),
        AccountOptions(name="B/../x", jetstream=STREAMS),
        storage=storage(),
    )
    for name in ("$G", "A", "B/../x"):
        client = world.user(name)
        client.stream()
        client.put(b"s.1", name.encode())
        client.consumer()
        assert client.ack(client.pull().take()[0])
    directories = sorted(path.name for path in (tmp_path / "streams").iterdir())
    assert directories == ["A%2FS", "B%252F%2E%2E%252Fx%2FS", "S"]
    world.restart(storage)
    for name in ("$G", "A", "B/../x"):
        client = world.user(name)
        got = client.api("STREAM.MSG.GET.S", {"seq": 1})["message"]
        assert got["subject"] == "s.1"
        assert client.info()["ack_floor"]["stream_seq"] == 1
    world.user("A").api("STREAM.DELETE.S")
    world.restart(storage)
    assert world.user("A").api("STREAM.NAMES")["streams"] is None
    assert world.user("$G").api("STREAM.NAMES")["streams"] == ["S"]
    world.storage.close()


def test_a_store_written_without_accounts_belongs_to_the_default_one(tmp_path: Path) -> None:
    before = World(FileStorage(tmp_path, threaded=False))
    before.client().stream()
    before.client().put(b"s.1", b"old")
    before.storage.close()
    after = Accounts(
        AccountOptions(name="$G", jetstream=STREAMS),
        AccountOptions(name="A", jetstream=STREAMS),
        storage=FileStorage(tmp_path, threaded=False),
    )
    assert after.user("$G").api("STREAM.INFO.S")["state"]["messages"] == 1
    assert after.user("A").api("STREAM.NAMES")["streams"] is None
    after.storage.close()


def test_a_failed_flush_acknowledges_nothing_in_any_account() -> None:
    storage = HeldStorage()
    world = Accounts(
        AccountOptions(name="A", jetstream=STREAMS),
        AccountOptions(name="B", jetstream=STREAMS),
        storage=storage,
    )
    clients = [world.user("A"), world.user("B")]
    for client in clients:
        client.stream()
    storage.hold = True
    inboxes = [client.request(b"s.1", b"x") for client in clients]
    storage.fail = StoreFullError("the disk is full")
    while storage.held:
        storage.release()
    world.tick()
    answers = [inbox.take() for inbox in inboxes]
    for answer in answers:
        assert json.loads(answer[0].payload)["error"]["err_code"] == 10023


def test_one_flush_carries_what_all_accounts_staged() -> None:
    storage = HeldStorage()
    world = Accounts(
        AccountOptions(name="A", jetstream=STREAMS),
        AccountOptions(name="B", jetstream=STREAMS),
        storage=storage,
    )
    clients = [world.user("A"), world.user("B")]
    for client in clients:
        client.stream()
    storage.hold = True
    for client in clients:
        client.session.receive(b"PUB s.1 2\r\nhi\r\n")
    world.tick()
    assert len(storage.held) == 1


@pytest.mark.parametrize("others", [(AccountOptions(name="A", jetstream=STREAMS),), ()])
def test_without_jetstream_an_account_is_told_so(others: tuple[AccountOptions, ...]) -> None:
    world = Accounts(*others, AccountOptions(name="C"))
    client = world.user("C")
    assert client.api("INFO")["error"]["err_code"] == 10039
    assert client.api("STREAM.CREATE.S", {"name": "S"})["error"]["err_code"] == 10039
    assert client.request(b"$JS.API.NO.SUCH").take() == []
    assert client.request(b"$JS.API.CONSUMER.MSG.NEXT.S.C").take()[0].status == "503"


def test_an_account_that_is_given_jetstream_later_has_it() -> None:
    world = Accounts(AccountOptions(name="C"))
    client = world.user("C")
    assert client.api("INFO")["error"]["err_code"] == 10039
    world.hub.configure_accounts([AccountOptions(name="C", jetstream=STREAMS)])
    assert client.stream()["did_create"]
    assert client.put(b"s.1")["seq"] == 1


@pytest.mark.parametrize(
    ("limits", "config", "err_code"),
    [
        ({"max_streams": 0}, {}, 10027),
        ({"max_memory": 1000}, {"storage": "memory", "max_bytes": 1001}, 10028),
        ({"max_memory": 1000}, {"storage": "file", "max_bytes": 1001}, None),
        ({"max_storage": 1000}, {"max_bytes": 1001}, 10047),
        ({"max_bytes_required": True}, {}, 10113),
        ({"max_stream_storage": 10}, {"max_bytes": 11}, 10122),
    ],
)
def test_a_stream_beyond_the_limits_of_its_account_is_refused(
    limits: dict[str, Any], config: dict[str, Any], err_code: int | None
) -> None:
    world = Accounts(AccountOptions(name="A", jetstream=JetStreamLimits(**limits)))
    answer = world.user("A").stream(**config)
    assert answer.get("error", {}).get("err_code") == err_code


def test_what_is_reserved_by_several_streams_adds_up_and_an_update_counts_the_difference() -> None:
    limits = JetStreamLimits(max_storage=1000)
    client = Accounts(AccountOptions(name="A", jetstream=limits)).user("A")
    assert "error" not in client.stream("S", max_bytes=600)
    assert client.stream("T", max_bytes=600)["error"]["err_code"] == 10047
    assert "error" not in client.stream("T", max_bytes=400)
    document = {"name": "S", "subjects": ["s.>"], "max_bytes": 601}
    assert client.api("STREAM.UPDATE.S", document)["error"]["err_code"] == 10047
    assert "error" not in client.api("STREAM.UPDATE.S", {**document, "max_bytes": 500})


def test_a_full_account_refuses_messages_and_takes_them_again_when_there_is_room() -> None:
    world = Accounts(
        AccountOptions(name="A", jetstream=JetStreamLimits(max_storage=1000)),
        AccountOptions(name="B", jetstream=STREAMS),
    )
    client = world.user("A")
    client.stream()
    answers = [client.put(b"s.1", b"x" * 400) for _ in range(3)]
    assert [answer.get("error", {}).get("err_code") for answer in answers] == [None, None, 10002]
    assert client.api("INFO")["limits"]["max_storage"] == 1000
    client.api("STREAM.PURGE.S")
    assert client.put(b"s.1", b"x" * 400)["seq"] == 3
    other = world.user("B")
    other.stream()
    assert other.put(b"s.1", b"x" * 4000)["seq"] == 1


def test_consumers_per_stream_are_limited() -> None:
    limits = JetStreamLimits(max_consumers=1)
    client = Accounts(AccountOptions(name="A", jetstream=limits)).user("A")
    client.stream()
    client.consumer("C")
    assert client.consumer("D")["error"]["err_code"] == 10026


PAIR = (
    AccountOptions(
        name="A",
        exports=(
            Export(kind="service", subject=b"svc.*.*"),
            Export(kind="stream", subject=b"pub.>"),
            Export(kind="service", subject=b"many", many_answers=True),
        ),
    ),
    AccountOptions(
        name="B",
        imports=(
            Import(kind="service", account="A", subject=b"svc.*.*", local=b"my.$2.$1"),
            Import(kind="stream", account="A", subject=b"pub.>", local=b"from.a.pub.>"),
            Import(kind="service", account="A", subject=b"many", local=b"many"),
        ),
    ),
)


def test_a_service_of_another_account_answers_once_and_sees_no_inbox() -> None:
    world = Accounts(*PAIR)
    a, b = world.user("A"), world.user("B")
    asked = a.subscribe(b"svc.>")
    inbox = b.request(b"my.y.x", b"question")
    (request,) = asked.take()
    assert (request.subject, request.payload) == (b"svc.x.y", b"question")
    assert request.reply.startswith(b"_R_.")
    assert json.loads(request.header["Nats-Request-Info"])["acc"] == "B"
    a.publish(request.reply, b"answer")
    a.publish(request.reply, b"again")
    assert [(m.subject, m.payload) for m in inbox.take()] == [(inbox.subject, b"answer")]


def test_a_service_that_may_answers_as_often_as_it_likes_for_two_minutes() -> None:
    world = Accounts(*PAIR)
    a, b = world.user("A"), world.user("B")
    asked = a.subscribe(b"many")
    inbox = b.request(b"many")
    (request,) = asked.take()
    a.publish(request.reply, b"1")
    a.publish(request.reply, b"2")
    assert [m.payload for m in inbox.take()] == [b"1", b"2"]
    world.clock.advance(121)
    a.publish(request.reply, b"3")
    assert inbox.take() == []


def test_a_fast_batch_goes_through_a_service() -> None:
    world = Accounts(
        AccountOptions(
            name="A", jetstream=STREAMS, exports=(Export(kind="service", subject=b"s.>"),)
        ),
        AccountOptions(
            name="B", imports=(Import(kind="service", account="A", subject=b"s.>", local=b"t.>"),)
        ),
    )
    a, b = world.user("A"), world.user("B")
    a.stream("S", allow_batched=True)
    inbox = b.subscribe(b"I.>")
    for place, operation in ((1, 0), (2, 1), (3, 1), (5, 1)):
        b.publish(b"t.x", b"%d" % place, b"I.one.3.fail.%d.%d.$FI" % (place, operation))
    answers = [(m.subject, json.loads(m.payload)) for m in inbox.take()]
    assert answers == [
        (b"I.one.3.fail.1.0.$FI", {"type": "ack", "seq": 0, "msgs": 3}),
        (b"I.one.3.fail.3.1.$FI", {"type": "ack", "seq": 3, "msgs": 3}),
        (b"I.one.3.fail.5.1.$FI", {"type": "gap", "last_seq": 4, "seq": 5}),
        (b"I.one.3.fail.5.1.$FI", {"stream": "S", "seq": 3, "batch": "one", "count": 3}),
    ]


def test_a_service_nobody_offers_has_no_responders() -> None:
    world = Accounts(*PAIR)
    world.user("A")
    assert world.user("B").request(b"my.y.x").take()[0].status == "503"


def test_an_imported_stream_arrives_under_its_local_name_and_can_be_stored() -> None:
    publisher, subscriber = PAIR
    world = Accounts(
        publisher,
        AccountOptions(name="B", jetstream=STREAMS, imports=subscriber.imports),
    )
    a, b = world.user("A"), world.user("B")
    heard = b.subscribe(b"from.a.>")
    b.stream("S", subjects=["from.a.>"])
    a.publish(b"pub.x.y", b"1", b"reply.here")
    assert [(m.subject, m.reply) for m in heard.take()] == [(b"from.a.pub.x.y", b"reply.here")]
    assert b.api("STREAM.INFO.S")["state"]["messages"] == 1
    b.publish(b"from.a.pub.x.y", b"not the other way")
    assert len(heard.take()) == 1


def test_a_request_is_not_heard_by_who_imports_its_subject_as_a_stream() -> None:
    world = Accounts(
        AccountOptions(
            name="A",
            jetstream=STREAMS,
            exports=(
                Export(kind="service", subject=b"q.>"),
                Export(kind="stream", subject=b"q.>"),
            ),
        ),
        AccountOptions(
            name="B",
            imports=(Import(kind="service", account="A", subject=b"q.>", local=b"q.>"),),
        ),
        AccountOptions(
            name="C", imports=(Import(kind="stream", account="A", subject=b"q.>", local=b"q.>"),)
        ),
    )
    a, b, c = map(world.user, "ABC")
    a.stream("S", subjects=["q.stored"])
    heard, overheard = a.subscribe(b"q.*"), c.subscribe(b"q.*")
    b.request(b"q.x", b"secret")
    assert b.put(b"q.stored", b"secret")["seq"] == 1
    assert [message.payload for message in heard.take()] == [b"secret"] * 2
    assert overheard.take() == []
    a.publish(b"q.x", b"news")
    assert [message.payload for message in overheard.take()] == [b"news"]
    heard.close()
    assert b.request(b"q.x", b"secret").take()[0].status == "503"
    assert overheard.take() == []


@pytest.mark.parametrize(
    ("accounts", "complaint"),
    [
        ([AccountOptions(name="A"), AccountOptions(name="A")], "'A' is there twice"),
        (
            [
                AccountOptions(
                    name="A",
                    imports=(Import(kind="service", account="X", subject=b"s", local=b"s"),),
                )
            ],
            "there is no account 'X'",
        ),
        (
            [
                AccountOptions(name="A", exports=(Export(kind="stream", subject=b"s"),)),
                AccountOptions(
                    name="B",
                    imports=(Import(kind="service", account="A", subject=b"s", local=b"s"),),
                ),
            ],
            "A does not export it",
        ),
        (
            [
                AccountOptions(
                    name="A",
                    exports=(Export(kind="stream", subject=b"s", accounts=frozenset(["C"])),),
                ),
                AccountOptions(
                    name="B",
                    imports=(Import(kind="stream", account="A", subject=b"s", local=b"s"),),
                ),
            ],
            "A does not export it to this account",
        ),
        (
            [
                AccountOptions(name="A", exports=(Export(kind="stream", subject=b"s.*"),)),
                AccountOptions(
                    name="B",
                    imports=(Import(kind="stream", account="A", subject=b"s.*", local=b"t"),),
                ),
            ],
            "needs the wildcards of 's.\\*'",
        ),
        (
            [
                AccountOptions(
                    name=mine,
                    exports=(Export(kind="stream", subject=b">"),),
                    imports=(Import(kind="stream", account=other, subject=b"a.>", local=b"a.>"),),
                )
                for mine, other in ("AB", "BA")
            ],
            "goes in a circle",
        ),
    ],
)
def test_links_that_cannot_be_are_refused(accounts: list[AccountOptions], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        check_accounts(accounts)


def streams_for_others() -> Accounts:
    """A has streams, B reaches them as ``of_a.…`` and hears what A sends to ``for_b.…``."""
    exports = [
        Export(kind="service", subject=b"$JS.API.>"),
        Export(kind="stream", subject=b"for_b.>"),
    ]
    imports = [
        Import(kind="service", account="A", subject=b"$JS.API.>", local=b"of_a.>"),
        Import(kind="stream", account="A", subject=b"for_b.>", local=b"for_b.>"),
    ]
    world = Accounts(
        AccountOptions(name="A", jetstream=STREAMS, exports=tuple(exports)),
        AccountOptions(name="B", imports=tuple(imports)),
    )
    world.user("A").stream("S")
    return world


def test_a_push_consumer_delivers_to_who_imports_its_subject() -> None:
    world = streams_for_others()
    a, b = world.user("A"), world.user("B")
    config = {"name": "C", "deliver_subject": "for_b.here", "ack_policy": "none"}
    a.api("CONSUMER.CREATE.S.C", {"stream_name": "S", "config": config})
    a.put(b"s.early")
    heard = b.subscribe(b"for_b.here")
    a.put(b"s.late", b"x")
    assert [m.subject for m in heard.take()] == [b"s.early", b"s.late"]
    b.send(b"UNSUB 1\r\n")
    a.put(b"s.later")
    info = a.api("CONSUMER.INFO.S.C")
    assert (info["num_pending"], info["delivered"]["stream_seq"]) == (1, 2)


def test_a_message_that_was_pulled_through_a_service_shows_its_own_subject() -> None:
    world = streams_for_others()
    a, b = world.user("A"), world.user("B")
    a.put(b"s.x", b"1")
    config = {"name": "C", "durable_name": "C", "ack_policy": "explicit"}
    a.api("CONSUMER.CREATE.S.C", {"stream_name": "S", "config": config})
    got = b.request(b"of_a.CONSUMER.MSG.NEXT.S.C", b'{"batch":1,"no_wait":true}').take()
    assert [(m.subject, m.payload) for m in got] == [(b"s.x", b"1")]


def test_connections_and_subscriptions_of_an_account_are_limited() -> None:
    world = Accounts(AccountOptions(name="A", connections_max=1, subscriptions_max=1))
    first = world.user("A")
    first.subscribe(b"a")
    first.subscribe(b"b")
    assert first.errors == ["maximum subscriptions exceeded"]
    second = world.user("A")
    assert second.errors == ["maximum account active connections exceeded"]
    first.session.disconnected()
    assert world.user("A").errors == []


def told(world: Accounts, *accounts: AccountOptions) -> None:
    """The operator changed the accounts."""
    world.hub.configure_accounts(accounts)
    world.hub.reconfigure(world.hub.options, world.hub.authenticator)
    world.tick()


def test_an_account_that_may_have_fewer_connections_loses_the_newest() -> None:
    world = Accounts(AccountOptions(name="A", connections_max=5), AccountOptions(name="B"))
    clients = [world.user("A") for _ in range(4)]
    other = world.user("B")
    told(world, AccountOptions(name="A", connections_max=2), AccountOptions(name="B"))
    said = "maximum account active connections exceeded"
    assert [client.errors for client in clients] == [[], [], [said], [said]]
    assert [client.session.closed for client in clients] == [False, False, True, True]
    assert not other.session.closed
    account = world.hub.accounts.get("A")
    assert account is not None
    assert account.connections == 2
    assert world.user("A").errors == [said]


def test_who_has_more_subscriptions_than_the_account_allows_by_now_is_hung_up_on() -> None:
    world = Accounts(AccountOptions(name="A", subscriptions_max=5))
    few, many = world.user("A"), world.user("A")
    few.subscribe(b"a")
    for subject in (b"a", b"b", b"c"):
        many.subscribe(subject)
    told(world, AccountOptions(name="A", subscriptions_max=2))
    assert (few.errors, many.errors) == ([], ["maximum subscriptions exceeded"])
    few.subscribe(b"b")
    assert few.errors == []  # each connection has its own number of them
    few.subscribe(b"c")
    assert few.errors == ["maximum subscriptions exceeded"]
    assert not few.session.closed


def test_a_lower_payload_holds_for_the_next_message_of_who_is_connected() -> None:
    world = Accounts(AccountOptions(name="A", payload_max=100), AccountOptions(name="B"))
    a, b = world.user("A"), world.user("B")
    a.publish(b"x", b"y" * 100)
    assert not a.session.closed
    told(world, AccountOptions(name="A", payload_max=10), AccountOptions(name="B"))
    assert b'"max_payload":10,' in world.hub.info(a.session)
    for client in (a, b):
        client.publish(b"x", b"y" * 11)
    assert a.errors == ["Maximum Payload Violation"]
    assert a.session.closed
    assert not b.session.closed


API = Import(kind="service", account="A", subject=b"$JS.API.>", local=b"$JS.API.>")
ONE = Import(
    kind="service", account="A", subject=b"$JS.API.STREAM.INFO.*", local=b"$JS.API.STREAM.INFO.*"
)
ELSEWHERE = Import(kind="service", account="A", subject=b"$JS.API.>", local=b"JS.far.API.>")


def importing(*imports: Import) -> list[AccountOptions]:
    exports = tuple(
        Export(kind="service", subject=subject, many_answers=True)
        for subject in (b"$JS.API.>", b"$JS.API.STREAM.INFO.*")
    )
    return [
        AccountOptions(name="A", jetstream=STREAMS, exports=exports),
        AccountOptions(name="B", imports=imports),
    ]


def answers(client: Client, verb: str, body: Any = None) -> list[Any]:
    """Of each answer its error's number, or its status, or True."""
    payload = b"" if body is None else json.dumps(body).encode()
    got = client.request(f"$JS.API.{verb}".encode(), payload)
    client.world.settle()
    return [
        int(each.status)
        if each.status
        else json.loads(each.payload).get("error", {}).get("err_code", True)
        for each in got.take()
    ]


def test_who_imports_the_api_of_another_account_is_answered_from_there_alone() -> None:
    world = Accounts(*importing(API))
    a, b = world.user("A"), world.user("B")
    config = {"name": "S", "subjects": ["s.>"]}
    assert answers(b, "STREAM.CREATE.S", config) == [True]
    assert answers(a, "STREAM.INFO.S") == answers(b, "STREAM.INFO.S") == [True]
    assert answers(b, "STREAM.INFO.T") == [10059]
    assert answers(b, "STREAM.DELETE.S") == [True]
    assert answers(a, "INFO") == answers(b, "INFO") == [True]


def test_calls_that_are_not_imported_beside_others_have_no_responders() -> None:
    world = Accounts(*importing(ONE))
    a, b = world.user("A"), world.user("B")
    a.stream()
    assert answers(b, "STREAM.INFO.S") == [True]
    for verb in ("INFO", "STREAM.NAMES", "STREAM.CREATE.T", "STREAM.DELETE.S"):
        assert answers(b, verb, {}) == [503]


def test_an_import_under_another_name_leaves_the_accounts_own_answer() -> None:
    world = Accounts(*importing(ELSEWHERE))
    assert answers(world.user("B"), "INFO") == [10039]


def test_imports_that_come_and_go_while_serving_decide_who_answers() -> None:
    world = Accounts(*importing())
    client = world.user("B")
    assert answers(client, "INFO") == [10039]
    told(world, *importing(API))
    assert answers(client, "INFO") == [True]
    told(world, *importing(ONE))
    assert answers(client, "INFO") == [503]
    told(world, *importing())
    assert answers(client, "INFO") == [10039]


def test_a_user_that_moves_takes_its_subscriptions_along() -> None:
    world = Accounts(AccountOptions(name="A"), AccountOptions(name="B"))
    ann = world.user("A")
    heard = ann.subscribe(b"x")
    moved = UserAuthentication([User("A", "p", account="B"), User("B", "p", account="B")])
    world.hub.reconfigure(world.hub.options, moved)
    world.user("B").publish(b"x", b"hello")
    assert [m.payload for m in heard.take()] == [b"hello"]
    assert [(a.name, a.connections) for a in world.hub.accounts if a.connections] == [("B", 2)]


def test_jetstream_comes_to_an_account_while_serving_and_leaves_with_a_restart() -> None:
    world = Accounts(AccountOptions(name="A"), AccountOptions(name="B", jetstream=STREAMS))
    client = world.user("A")
    assert client.stream()["error"]["err_code"] == 10039
    assert world.hub.configure_accounts([AccountOptions(name="A", jetstream=STREAMS)]) == []
    assert client.stream()["did_create"]
    assert world.hub.configure_accounts([AccountOptions(name="A")]) == ["A"]
    assert client.put(b"s.1")["seq"] == 1


def test_a_limit_that_comes_while_serving_holds_for_the_next_message() -> None:
    world = Accounts(AccountOptions(name="A", jetstream=STREAMS))
    client = world.user("A")
    client.stream()
    client.put(b"s.1", b"x" * 400)
    limits = JetStreamLimits(max_storage=500)
    world.hub.configure_accounts([AccountOptions(name="A", jetstream=limits)])
    assert client.put(b"s.1", b"x" * 400)["error"]["err_code"] == 10002


def test_no_auth_user_is_whom_a_client_without_credentials_acts_for() -> None:
    users = [User("ann", "p", account="A"), User("guest", account="B")]
    hub = Hub(
        ManualClock(), random.Random(1), authenticator=UserAuthentication(users, default="guest")
    )
    hub.configure_accounts([AccountOptions(name="A"), AccountOptions(name="B")])
    hub.start_jetstream(MemoryStorage())
    session = hub.connect(Peer())
    assert b"auth_required" not in session.take_output()[0]
    assert session.account.name == "B"
    session.receive(b'CONNECT {"verbose":false,"user":"ann","pass":"p"}\r\n')
    assert session.account.name == "A"
    wrong = hub.connect(Peer())
    wrong.receive(b'CONNECT {"verbose":false,"user":"ann","pass":"x"}\r\n')
    assert wrong.closed


def test_a_schedule_waits_for_room_in_its_account() -> None:
    def options(limit: int) -> AccountOptions:
        return AccountOptions(name="A", jetstream=JetStreamLimits(max_storage=limit))

    world = Accounts(options(10_000))
    client = world.user("A")
    client.stream(allow_msg_schedules=True)
    when = format_time(world.clock.now_ns() + 2_000_000_000)
    headers = {"Nats_Schedule": f"@at {when}", "Nats_Schedule_Target": "s.out"}
    assert client.put(b"s.plan", b"work", **headers)["seq"] == 1
    world.hub.configure_accounts([options(100)])
    world.advance(5)
    assert client.api("STREAM.INFO.S")["state"]["last_seq"] == 1
    world.hub.configure_accounts([options(10_000)])
    world.advance(5)
    assert client.api("STREAM.INFO.S")["state"]["last_seq"] == 2


R1 = JetStreamLimits(max_storage=1000, max_streams=1, max_ack_pending=5)
R3 = JetStreamLimits(max_storage=3000)


def test_limits_by_tier_are_those_of_streams_without_replicas() -> None:
    tiers = JetStreamLimits(tiers=(("R1", R1), ("R3", R3)))
    client = Accounts(AccountOptions(name="A", jetstream=tiers)).user("A")
    assert "error" not in client.stream(max_bytes=600)
    assert client.stream("T")["error"]["err_code"] == 10027
    assert client.consumer(max_ack_pending=6)["error"]["err_code"] == 10121
    info = decode(json.dumps(client.api("INFO")), AccountInfo)
    assert (info.limits.max_storage, info.limits.max_streams) == (0, 0)
    assert (info.reserved_storage, info.streams) == (600, 1)
    one, three = info.tiers["R1"], info.tiers["R3"]
    assert (one.limits.max_storage, one.reserved_storage, one.streams) == (1000, 600, 1)
    assert (three.limits.max_storage, three.reserved_storage, three.streams) == (3000, 0, 0)


def test_without_a_tier_for_one_node_there_are_no_streams() -> None:
    world = Accounts(AccountOptions(name="A", jetstream=STREAMS))
    client = world.user("A")
    client.stream()
    tiers = JetStreamLimits(tiers=(("R3", R3),))
    world.hub.configure_accounts([AccountOptions(name="A", jetstream=tiers)])
    assert client.stream("T")["error"]["err_code"] == 10120
    assert client.put(b"s.1", b"x")["error"]["err_code"] == 10002  # nor does the old one grow
    assert client.api("INFO")["tiers"].keys() == {"R3"}


def forged(who: str) -> dict[str, str]:
    return {"Nats-Request-Info": json.dumps({"acc": who})}


def test_who_asks_a_service_is_what_the_server_says() -> None:
    world = Accounts(*PAIR)
    a, b = world.user("A"), world.user("B")
    asked = a.subscribe(b"svc.>")
    b.publish(b"my.y.x", b"", b"", **forged("A"), Other="kept")
    (request,) = asked.take()
    assert request.headers.count(b"Nats-Request-Info") == 1
    assert json.loads(request.header["Nats-Request-Info"]) == {"acc": "B"}
    assert request.header["Other"] == "kept"


def test_a_request_through_two_accounts_is_still_the_first_ones() -> None:
    world = Accounts(
        AccountOptions(name="A", exports=(Export(kind="service", subject=b"a"),)),
        AccountOptions(
            name="B",
            exports=(Export(kind="service", subject=b"b"),),
            imports=(Import(kind="service", account="A", subject=b"a", local=b"b"),),
        ),
        AccountOptions(
            name="C", imports=(Import(kind="service", account="B", subject=b"b", local=b"c"),)
        ),
    )
    a, b, c = world.user("A"), world.user("B"), world.user("C")
    asked = a.subscribe(b"a")
    said = []
    for client, subject in ((c, b"c"), (b, b"b")):
        inbox = client.subscribe()
        client.publish(subject, b"", inbox.subject, **forged("A"))
        (request,) = asked.take()
        said.append(json.loads(request.header["Nats-Request-Info"]))
        a.publish(request.reply, b"answer")
        assert [m.payload for m in inbox.take()] == [b"answer"]
    assert said == [{"acc": "C", "svc": "B"}, {"acc": "B"}]


def test_who_shares_says_which_client_asks() -> None:
    world = Accounts(
        AccountOptions(name="A", exports=(Export(kind="service", subject=b"a"),)),
        AccountOptions(
            name="B",
            imports=(Import(kind="service", account="A", subject=b"a", local=b"a", share=True),),
        ),
    )
    asked = world.user("A").subscribe(b"a")
    b = world.user("B")
    b.publish(b"a", b"")
    said = json.loads(asked.take()[0].header["Nats-Request-Info"])
    assert (said["acc"], said["user"], said["id"]) == ("B", "B", b.session.client_id)


@pytest.mark.parametrize("together", [1, 20])
def test_nobody_names_a_reply_that_answers_somebody_in_another_account(together: int) -> None:
    world = Accounts(AccountOptions(name="A", jetstream=STREAMS, exports=PAIR[0].exports), PAIR[1])
    a, b = world.user("A"), world.user("B")
    asked = a.subscribe(b"svc.>")
    inbox = b.request(b"my.y.x")
    (request,) = asked.take()
    a.stream()
    a.send(b"PUB s.x %b 1\r\nx\r\n" % request.reply * together)
    assert inbox.take() == []
    assert (
        a.errors
        == [f'Permissions Violation for Publish with Reply of "{request.reply.decode()}"']
        * together
    )
    assert a.api("STREAM.INFO.S")["state"]["messages"] == 0


def test_an_import_of_exactly_its_subject_is_no_listener_of_a_push_consumer() -> None:
    link: dict[str, Any] = {"account": "A", "subject": b"to.b", "local": b"from.a"}
    accounts = [
        AccountOptions(
            name="A", jetstream=STREAMS, exports=(Export(kind="stream", subject=b"to.b"),)
        ),
        AccountOptions(name="B", imports=(Import(kind="stream", **link),)),
    ]
    world = Accounts(*accounts)
    a, b = world.user("A"), world.user("B")
    a.stream()
    a.put(b"s.1")
    config = {"name": "C", "deliver_subject": "to.b", "ack_policy": "none"}
    a.api("CONSUMER.CREATE.S.C", {"stream_name": "S", "config": {**config, "durable_name": "C"}})
    assert a.info()["num_pending"] == 1
    world.hub.configure_accounts(accounts)  # all links are made anew
    assert a.info()["num_pending"] == 1
    heard = b.subscribe(b"from.a")
    assert [m.subject for m in heard.take()] == [b"s.1"]
    world.hub.configure_accounts(accounts)
    a.put(b"s.2")
    assert [m.subject for m in heard.take()] == [b"s.2"]
    heard.close()
    a.put(b"s.3")
    assert a.info()["num_pending"] == 1


def test_the_number_of_calls_does_not_count_the_one_that_asks() -> None:
    client = Accounts(AccountOptions(name="A", jetstream=STREAMS)).user("A")
    assert client.api("INFO")["api"] == {"level": 4, "total": 0, "errors": 0}
    client.api("STREAM.INFO.NONE")
    assert client.api("INFO")["api"] == {"level": 4, "total": 2, "errors": 1}
