"""Sources and mirrors of streams of other accounts: as far as imports and exports let them."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.core.accounts.test_accounts import STREAMS, Accounts
from headrace.broker.core.jetstream import JetStreamOptions
from headrace.broker.core.options import AccountOptions, Export, Import
from headrace.broker.store import FileStorage
from jetstream_world import Client, World, copy_info

A = AccountOptions(
    name="A",
    jetstream=STREAMS,
    exports=(
        Export(kind="service", subject=b"$JS.API.>"),
        Export(kind="stream", subject=b"deliver.b.>"),
    ),
)
B = AccountOptions(
    name="B",
    jetstream=STREAMS,
    imports=(
        Import(kind="service", account="A", subject=b"$JS.API.>", local=b"JS.A.API.>"),
        Import(kind="stream", account="A", subject=b"deliver.b.>", local=b"deliver.b.>"),
    ),
)
EXTERNAL = {"api": "JS.A.API", "deliver": "deliver.b"}
S = {"name": "S", "external": EXTERNAL}
LAST = Export(kind="stream", subject=b"d.>")


def both(a: AccountOptions = A, b: AccountOptions = B, storage: Any = None) -> Accounts:
    return Accounts(a, b, storage=storage)


def fill(client: Client, *numbers: int) -> None:
    for number in numbers:
        client.put(b"s.%d" % number, b"%d" % number)
    client.world.settle()


def payloads(world: World, account: str = "B", name: str = "T") -> list[int]:
    world.settle()
    engine = world.hub.accounts.get(account).engine  # type: ignore[union-attr]
    assert engine is not None
    store = engine.registry.streams[name].store
    return [int(m.payload) for m in store.read(0, None, 1 << 20, 1 << 30, store.last_seq)]


def without(options: AccountOptions, field: str, kind: str) -> AccountOptions:
    kept = tuple(entry for entry in getattr(options, field) if entry.kind != kind)
    changed: dict[str, Any] = {field: kept}
    return msgspec.structs.replace(options, **changed)


@pytest.mark.parametrize("as_mirror", [False, True])
def test_messages_come_from_the_other_account_old_and_new(as_mirror: bool) -> None:
    world = both()
    a, b = world.user("A"), world.user("B")
    a.stream()
    fill(a, 1, 2)
    config = {"mirror": S} if as_mirror else {"sources": [S]}
    assert "error" not in b.api("STREAM.CREATE.T", {"name": "T", **config})
    assert payloads(world) == [1, 2]
    fill(a, 3)
    assert payloads(world) == [1, 2, 3]
    info = copy_info(b)
    assert info["external"] == EXTERNAL
    assert "error" not in info
    assert info["lag"] == 0


def test_the_header_and_the_same_name_at_home_are_told_apart() -> None:
    world = both()
    a, b = world.user("A"), world.user("B")
    a.stream()
    b.stream()
    fill(a, 1)
    fill(b, 2)
    b.api("STREAM.CREATE.T", {"name": "T", "sources": [{"name": "S"}, S], "allow_direct": True})
    assert sorted(payloads(world)) == [1, 2]
    found = {
        m.header["Nats-Stream-Source"].split(" ")[0]: m.payload
        for seq in (b'{"seq":1}', b'{"seq":2}')
        for m in b.request(b"$JS.API.DIRECT.GET.T", seq).take()
    }
    assert found.pop("S") == b"2"
    assert [key[:2] for key in found] == ["S:"]


def test_the_mirror_of_a_stream_of_its_own_name() -> None:
    world = both()
    a, b = world.user("A"), world.user("B")
    a.stream("T", subjects=["s.>"])
    fill(a, 1)
    answer = b.api("STREAM.CREATE.T", {"name": "T", "mirror": {**S, "name": "T"}})
    assert "error" not in answer
    assert payloads(world) == [1]


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (A, without(B, "imports", "service")),
        (A, without(B, "imports", "stream")),
        (without(A, "exports", "service"), without(B, "imports", "service")),
        (A, msgspec.structs.replace(B, imports=())),
    ],
)
def test_without_an_import_nothing_comes_and_the_info_says_so(
    a: AccountOptions, b: AccountOptions
) -> None:
    world = both(a, b)
    one, other = world.user("A"), world.user("B")
    one.stream()
    fill(one, 1)
    assert "error" not in other.api("STREAM.CREATE.T", {"name": "T", "sources": [S]})
    assert payloads(world) == []
    assert copy_info(other)["error"]["err_code"] == 10045
    assert "imported" in copy_info(other)["error"]["description"]


def test_an_import_of_one_stream_is_not_one_of_another() -> None:
    call = b"$JS.API.CONSUMER.CREATE.S"
    a = msgspec.structs.replace(A, exports=(Export(kind="service", subject=call), A.exports[1]))
    b = msgspec.structs.replace(
        B,
        imports=(
            Import(kind="service", account="A", subject=call, local=b"JS.A.API.CONSUMER.CREATE.S"),
            B.imports[1],
        ),
    )
    world = both(a, b)
    one, other = world.user("A"), world.user("B")
    one.stream()
    one.stream("U")
    fill(one, 1)
    other.api("STREAM.CREATE.T", {"name": "T", "sources": [{**S, "name": "U"}]})
    assert copy_info(other)["error"]["err_code"] == 10045
    other.api("STREAM.UPDATE.T", {"name": "T", "sources": [S]})
    assert payloads(world) == [1]
    # A filter makes it another request, which nobody exports.
    other.api("STREAM.UPDATE.T", {"name": "T", "sources": [{**S, "filter_subject": "s.9"}]})
    assert copy_info(other)["error"]["err_code"] == 10045


def test_a_lost_export_stops_it_and_a_new_one_lets_it_go_on() -> None:
    world = both()
    a, b = world.user("A"), world.user("B")
    a.stream()
    fill(a, 1)
    b.api("STREAM.CREATE.T", {"name": "T", "sources": [S]})
    assert payloads(world) == [1]
    world.hub.configure_accounts([A, without(B, "imports", "stream")])
    fill(a, 2)
    assert payloads(world) == [1]
    assert copy_info(b)["error"]["err_code"] == 10045
    world.hub.configure_accounts([A, B])
    assert payloads(world) == [1, 2]
    assert "error" not in copy_info(b)


def test_an_account_without_streams_says_so() -> None:
    world = both(msgspec.structs.replace(A, jetstream=None))
    b = world.user("B")
    b.api("STREAM.CREATE.T", {"name": "T", "mirror": S})
    assert copy_info(b)["error"]["err_code"] == 10039


def test_the_origin_comes_later_goes_and_comes_again() -> None:
    world = both()
    a, b = world.user("A"), world.user("B")
    b.api("STREAM.CREATE.T", {"name": "T", "sources": [S]})
    assert copy_info(b)["error"]["err_code"] == 10059
    a.stream()
    fill(a, 1)
    assert payloads(world) == [1]
    a.api("STREAM.DELETE.S")
    assert copy_info(b)["error"]["err_code"] == 10059
    world.advance(1)
    a.stream()
    fill(a, 2)
    assert payloads(world) == [1, 2]


def test_a_work_queue_of_another_account_lets_go_of_what_is_copied() -> None:
    world = both()
    a, b = world.user("A"), world.user("B")
    a.stream(retention="workqueue")
    b.api("STREAM.CREATE.T", {"name": "T", "sources": [S]})
    fill(a, 1, 2)
    assert payloads(world) == [1, 2]
    assert payloads(world, "A", "S") == []
    b.api("STREAM.DELETE.T")
    fill(a, 3)
    assert payloads(world, "A", "S") == [3]


def test_a_restart_goes_on_where_it_was_whichever_account_is_opened_first(tmp_path: Path) -> None:
    def storage() -> FileStorage:
        return FileStorage(tmp_path, threaded=False)

    world = both(storage=storage())
    a, b = world.user("A"), world.user("B")
    a.stream(retention="interest")
    b.api("STREAM.CREATE.T", {"name": "T", "sources": [S]})
    fill(a, 1, 2)
    assert payloads(world) == [1, 2]
    world.restart(storage)
    fill(world.user("A"), 3)
    assert payloads(world) == [1, 2, 3]
    assert payloads(world, "A", "S") == []


def test_a_restart_without_the_import_copies_nothing_more(tmp_path: Path) -> None:
    def storage() -> FileStorage:
        return FileStorage(tmp_path, threaded=False)

    world = both(storage=storage())
    a, b = world.user("A"), world.user("B")
    a.stream()
    b.api("STREAM.CREATE.T", {"name": "T", "sources": [S]})
    fill(a, 1)
    assert payloads(world) == [1]
    world.accounts = (A, msgspec.structs.replace(B, imports=()))
    world.restart(storage)
    fill(world.user("A"), 2)
    assert payloads(world) == [1]


def test_through_two_accounts() -> None:
    middle = msgspec.structs.replace(
        B,
        exports=(
            Export(kind="service", subject=b"JS.A.API.>"),
            Export(kind="stream", subject=b"deliver.b.>"),
        ),
    )
    last = AccountOptions(
        name="C",
        jetstream=STREAMS,
        imports=(
            Import(kind="service", account="B", subject=b"JS.A.API.>", local=b"far.>"),
            Import(kind="stream", account="B", subject=b"deliver.b.>", local=b"deliver.b.>"),
        ),
    )
    world = Accounts(A, middle, last)
    a, c = world.user("A"), world.user("C")
    a.stream()
    fill(a, 1)
    external = {"api": "far", "deliver": "deliver.b"}
    c.api("STREAM.CREATE.T", {"name": "T", "sources": [{"name": "S", "external": external}]})
    assert payloads(world, "C") == [1]


def test_our_own_domain_is_our_own_account() -> None:
    world = World(options=JetStreamOptions(domain="hub"))
    client = world.client()
    client.stream()
    fill(client, 1)
    source = {"name": "S", "external": {"api": "$JS.hub.API", "deliver": ""}}
    client.api("STREAM.CREATE.T", {"name": "T", "sources": [source]})
    assert payloads(world, "$G") == [1]
    client.api("STREAM.DELETE.S")
    assert copy_info(client)["error"]["err_code"] == 10059


FLOW = Export(kind="service", subject=b"$JS.FC.>")
FLOW_IMPORT = Import(kind="service", account="A", subject=b"$JS.FC.>", local=b"$JS.FC.>")
A_FLOW = msgspec.structs.replace(A, exports=(*A.exports, FLOW))
B_FLOW = msgspec.structs.replace(B, imports=(*B.imports, FLOW_IMPORT))
CONSUMER = {**S, "consumer": {"name": "C", "deliver_subject": "deliver.b.c"}}


def flow(client: Client, **config: Any) -> None:
    answer = client.consumer(
        ack_policy="flow_control", deliver_subject="deliver.b.c", max_ack_pending=2, **config
    )
    assert "error" not in answer


def test_a_consumer_of_the_other_account_delivers_and_is_answered() -> None:
    world = both(A_FLOW, B_FLOW)
    a, b = world.user("A"), world.user("B")
    a.stream(retention="workqueue")
    flow(a)
    b.api("STREAM.CREATE.T", {"name": "T", "sources": [CONSUMER]})
    fill(a, *range(1, 8))
    assert payloads(world) == list(range(1, 8))
    world.advance(2)
    assert payloads(world, "A", "S") == []
    assert "error" not in copy_info(b)


def test_the_other_accounts_turn_is_asked_for_and_not_waited_for() -> None:
    world = both(A_FLOW, msgspec.structs.replace(B_FLOW, imports=()))
    a, b = world.user("A"), world.user("B")
    a.stream()
    flow(a)  # two at a time
    b.api("STREAM.CREATE.T", {"name": "T", "sources": [CONSUMER]})
    fill(a, *range(1, 10))
    began_ns = world.clock.monotonic_ns()
    world.hub.configure_accounts([A_FLOW, B_FLOW])
    assert payloads(world) == list(range(1, 10))
    assert world.clock.monotonic_ns() == began_ns


def test_without_a_way_for_the_answers_it_stops_and_says_so() -> None:
    world = both()
    a, b = world.user("A"), world.user("B")
    a.stream()
    flow(a)
    b.api("STREAM.CREATE.T", {"name": "T", "sources": [CONSUMER]})
    fill(a, *range(1, 8))
    assert payloads(world) == [1, 2]
    assert copy_info(b)["error"]["err_code"] == 10045
    assert "$JS.FC.S.C" in copy_info(b)["error"]["description"]


def test_a_consumer_that_may_not_be_asked_or_does_not_arrive() -> None:
    world = both(A_FLOW, without(B_FLOW, "imports", "stream"))
    a, b = world.user("A"), world.user("B")
    a.stream()
    flow(a)
    b.api("STREAM.CREATE.T", {"name": "T", "sources": [CONSUMER]})
    fill(a, 1)
    assert "does not arrive" in copy_info(b)["error"]["description"]
    world.hub.configure_accounts([A_FLOW, without(B_FLOW, "imports", "service")])
    assert "nobody answers" in copy_info(b)["error"]["description"]
    world.hub.configure_accounts([A_FLOW, B_FLOW])
    world.advance(3)
    assert payloads(world) == [1]


def test_a_client_of_the_other_account_can_not_forge_deliveries() -> None:
    world = both(A_FLOW, B_FLOW)
    a, b = world.user("A"), world.user("B")
    a.stream()
    flow(a)
    b.api("STREAM.CREATE.T", {"name": "T", "sources": [CONSUMER]})
    fill(a, 1)
    a.publish(b"deliver.b.c", b"9", b"$JS.ACK.S.C.1.2.2.1.0")
    fill(a, 2)
    assert payloads(world) == [1, 2]


def test_another_prefix_to_deliver_is_looked_at_anew() -> None:
    world = both()
    a, b = world.user("A"), world.user("B")
    a.stream()
    b.api("STREAM.CREATE.T", {"name": "T", "sources": [S]})
    fill(a, 1)
    elsewhere = {**S, "external": {**EXTERNAL, "deliver": "deliver.c"}}
    assert "error" not in b.api("STREAM.UPDATE.T", {"name": "T", "sources": [elsewhere]})
    fill(a, 2)
    assert payloads(world) == [1]
    assert copy_info(b)["error"]["err_code"] == 10045
    b.api("STREAM.UPDATE.T", {"name": "T", "sources": [S]})
    assert payloads(world) == [1, 2]


events = st.lists(
    st.sampled_from(["publish", "publish", "cut", "link", "restart", "purge", "time"]), max_size=20
)


@settings(max_examples=40)
@given(events, st.sampled_from([S, CONSUMER]), st.sampled_from(["limits", "workqueue"]))
def test_every_message_crosses_once_whatever_happens_to_the_link(
    events: list[str], source: dict[str, Any], retention: str
) -> None:
    world = both(A_FLOW, B_FLOW)
    linked, cut = (A_FLOW, B_FLOW), (A_FLOW, msgspec.structs.replace(B_FLOW, imports=()))
    a, b = world.user("A"), world.user("B")
    a.stream(retention=retention)
    if source is CONSUMER:
        flow(a)
    b.api("STREAM.CREATE.T", {"name": "T", "sources": [source], "allow_direct": True})
    published, purged, kept = 0, 0, payloads(world)
    for event in [*events, "link", "time"]:
        if event == "publish":
            published += 1
            fill(a, published)
        elif event in ("cut", "link"):
            world.accounts = cut if event == "cut" else linked
            world.hub.configure_accounts(world.accounts)
        elif event == "restart":
            world.restart()
            a, b = world.user("A"), world.user("B")
        elif event == "purge":
            purged = len(payloads(world)) + purged
            b.api("STREAM.PURGE.T")
        elif event == "time":
            world.advance(3)
        before, kept = kept, payloads(world)
        assert kept == list(range(purged + 1, purged + len(kept) + 1))
        if world.accounts is cut and event != "purge":
            assert kept == before
    assert purged + len(kept) == published
    world.advance(3)
    if retention == "workqueue":
        assert payloads(world, "A", "S") == []


@pytest.mark.parametrize(("between", "comes"), [(30, True), (32, False)])
def test_the_way_to_an_api_is_not_endless(between: int, comes: bool) -> None:
    names = ["A", *(f"M{number}" for number in range(between)), "Z"]
    accounts = [
        msgspec.structs.replace(A, exports=(Export(kind="service", subject=b"$JS.API.>"), LAST))
    ]
    for before, name in itertools.pairwise(names):
        theirs = b"$JS.API.>" if before == "A" else b"far.>"
        service = Import(kind="service", account=before, subject=theirs, local=b"far.>")
        stream = Import(kind="stream", account=before, subject=b"d.>", local=b"d.>")
        exports = (Export(kind="service", subject=b"far.>"), LAST)
        accounts.append(
            AccountOptions(name=name, jetstream=STREAMS, imports=(service, stream), exports=exports)
        )
    world = Accounts(*accounts)
    a, z = world.user("A"), world.user("Z")
    a.stream()
    fill(a, 1)
    external = {"api": "far", "deliver": "d"}
    z.api("STREAM.CREATE.T", {"name": "T", "sources": [{"name": "S", "external": external}]})
    assert payloads(world, "Z") == ([1] if comes else [])
    assert ("error" in copy_info(z)) is not comes
