"""Schemas of a registry over HTTP: found by id, with what they refer to; what its failures mean."""

from __future__ import annotations

import io
import json
import socket
import ssl
from pathlib import Path
from typing import Any

import fastavro
import pytest
from google.protobuf import descriptor_pb2, message_factory
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ConfigurationError
from headrace.schemas import http
from headrace.schemas import registry as schemas
from headrace.schemas.address import Registry
from headrace.schemas.avro_names import inlined
from headrace.schemas.errors import NoSchemaError, RegistryAwayError
from headrace.schemas.http import RegistryAnswer
from headrace.schemas.registry import REFERENCES_MAX, SchemaRegistry
from headrace.spark.decoding import protobufs
from headrace.spark.decoding.columns import source_schema
from headrace.spark.links.outages import ServerPatience
from headrace.spark.options import parse_options
from headrace.spark.options.decoding import WORDS
from registry_server import RegistryServer

from .conftest import Feed
from .test_decoding import publish, read, schema
from .test_decoding_formats import V1, V2, avro

pytestmark = pytest.mark.usefixtures("links_end")


class Moments:
    """A clock that stands still but for its pauses."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def patience(self, seconds: float = 10.0) -> ServerPatience:
        return ServerPatience(seconds, "the registry", lambda: self.now_s, self._pass)

    def _pass(self, seconds: float) -> None:
        self.now_s += seconds


def asking(server: RegistryServer, kind: schemas.Kind = "AVRO", **more: Any) -> SchemaRegistry:
    return SchemaRegistry(Registry(server.url, words=WORDS, **more), kind, Moments().patience())


def confluent(number: int, value: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + value


def test_avro_of_old_writers_is_read_with_the_latest_schema_of_the_subject(
    feed: Feed, registry: RegistryServer, caplog: pytest.LogCaptureFixture
) -> None:
    registry.register("orders-value", json.dumps(V1), number=1)
    registry.register("orders-value", json.dumps(V2), number=70_000)
    registry.register("other", '"string"', number=5)
    registry.register("json", "{}", number=6, kind="JSON")
    publish(
        feed,
        [
            confluent(1, avro(V1, {"id": 1, "old": "first"})),
            confluent(70_000, avro(V2, {"id": 2, "amount": 0.5, "label": "second"})),
            confluent(9, b"nobody knows"),
            confluent(5, b"no record"),
            confluent(6, b"no Avro"),
            b"no id",
            confluent(1, avro(V1, {"id": 3, "old": "again"})),
        ],
    )
    how = {"schemaRegistry": registry.url + "/", "schemaSubject": "orders-value"}
    raw = {"stream": feed.name, "servers": feed.url, "valueFormat": "avro", **how}
    struct = source_schema(parse_options(raw))
    assert not isinstance(struct, str)
    assert struct.fieldNames()[-4:] == ["id", "amount", "label", "_rescued"]
    before = len(registry.asked)
    rows = read(feed, struct, valueFormat="avro", **how)
    assert [(row["id"], row["label"]) for row in rows] == [
        (1, "first"),
        (2, "second"),
        *[(None, None)] * 4,
        (3, "again"),
    ]
    assert "4 values of this task did not fit" in caplog.text
    assert f"no schema '9' in the registry {registry.url}" in caplog.text
    asked = [path for path in registry.asked[before:] if path.startswith("/schemas")]
    assert sorted(asked) == [f"/schemas/ids/{n}" for n in (1, 5, 6, 70_000, 9)]
    read(feed, struct, valueFormat="avro", **how)
    again = registry.asked[before + len(asked) + 1 :]
    assert "/schemas/ids/1" not in again, "what an id means never changes: it is asked for once"
    own = {"schemaRegistry": registry.url, "avroSchema": json.dumps(V2)}
    rows = read(feed, schema(label="string", id="bigint"), valueFormat="avro", **own)
    assert [row["id"] for row in rows] == [1, 2, None, None, None, None, 3]


POINT = {"type": "record", "name": "Point", "fields": [{"name": "x", "type": "int"}]}
PLACE = {
    "type": "record",
    "name": "Place",
    "namespace": "geo",
    "fields": [{"name": "at", "type": "Point"}, {"name": "was", "type": ["null", "geo.Point"]}],
}
TRIP = {
    "type": "record",
    "name": "Trip",
    "namespace": "travel",
    "fields": [
        {"name": "from", "type": "geo.Place"},
        {"name": "to", "type": {"type": "array", "items": "geo.Place"}},
        {"name": "kind", "type": "Kind"},
    ],
}
KIND = {"type": "enum", "name": "Kind", "symbols": ["BUS", "TRAIN"]}


def test_what_an_avro_schema_refers_to_is_fetched_with_it(registry: RegistryServer) -> None:
    point = {**POINT, "namespace": "geo"}
    registry.register("point", json.dumps(point), number=1)
    registry.register("place", json.dumps(PLACE), number=2, references=(("geo.Point", "point", 1),))
    registry.register("kind", json.dumps({**KIND, "name": "travel.Kind"}), number=3)
    registry.register(
        "trip/value é",
        json.dumps(TRIP),
        number=4,
        references=(
            ("geo.Place", "place", 1),
            ("geo.Point", "point", 1),
            ("travel.Kind", "kind", 1),
        ),
    )
    found = asking(registry, subject="trip/value é").newest()
    assert found.id == 4
    value = {
        "from": {"at": {"x": 1}, "was": None},
        "to": [{"at": {"x": 2}, "was": {"x": 3}}],
        "kind": "TRAIN",
    }
    whole = fastavro.parse_schema(json.loads(found.text))
    written = io.BytesIO()
    fastavro.schemaless_writer(written, whole, value)
    written.seek(0)
    assert fastavro.schemaless_reader(written, whole, None) == value
    assert written.getvalue() == b"\x02\x00\x02\x04\x02\x06\x00\x02"
    assert asking(registry).get("4") == found.text


def test_a_definition_is_written_where_its_name_comes_first_and_only_there() -> None:
    main = {
        "type": "record",
        "name": "A",
        "namespace": "n",
        "fields": [{"name": "one", "type": "B"}, {"name": "two", "type": ["null", "n.B"]}],
    }
    other = {"type": "fixed", "name": "B", "namespace": "n", "size": 4}
    found = json.loads(inlined(json.dumps(main), [json.dumps(other)]))
    assert found["fields"][0]["type"] == {**other, "name": "B", "namespace": "n"}
    assert found["fields"][1]["type"] == ["null", "n.B"]
    bare = {"type": "fixed", "name": "B", "size": 4}  # in no namespace, within one
    found = json.loads(inlined(json.dumps(main), [json.dumps(bare)]))
    assert found["fields"][0]["type"]["namespace"] == ""
    union = json.dumps([other, {"type": "enum", "name": "n.E", "symbols": ["X"]}])
    found = json.loads(
        inlined(json.dumps({**main, "fields": [{"name": "e", "type": "E"}]}), [union])
    )
    assert found["fields"][0]["type"]["symbols"] == ["X"]


def test_definitions_that_name_each_other_end() -> None:
    left = {"type": "record", "name": "L", "fields": [{"name": "r", "type": ["null", "R"]}]}
    right = {"type": "record", "name": "R", "fields": [{"name": "l", "type": ["null", "L"]}]}
    main = {"type": "record", "name": "M", "fields": [{"name": "l", "type": "L"}]}
    found = inlined(json.dumps(main), [json.dumps(left), json.dumps(right)])
    assert fastavro.parse_schema(json.loads(found))
    with pytest.raises(NoSchemaError, match="no JSON"):
        inlined(json.dumps(main), ["{"])


def proto_file(name: str, package: str, **fields: str) -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name=name, package=package, syntax="proto3")
    message = file.message_type.add(name=package.title())
    for number, (field, kind) in enumerate(fields.items(), 1):
        one = message.field.add(name=field, number=number, label=1)
        if kind == "int64":
            one.type = 3
        else:
            one.type, one.type_name = 11, kind
    return file


def test_protobuf_is_read_by_the_descriptor_of_the_registry_and_its_imports(
    feed: Feed, registry: RegistryServer
) -> None:
    money = proto_file("default", "money", units="int64")
    shop = proto_file(
        "default", "shop", id="int64", price=".money.Money", at=".google.protobuf.Timestamp"
    )
    shop.dependency.extend(["common/money.proto", "google/protobuf/timestamp.proto"])
    registry.register(
        "money", "syntax …", number=1, kind="PROTOBUF", serialized=money.SerializeToString()
    )
    registry.register(
        "shop-value",
        "syntax …",
        number=2,
        kind="PROTOBUF",
        serialized=shop.SerializeToString(),
        references=(("common/money.proto", "money", 1),),
    )
    found = asking(registry, "PROTOBUF", subject="shop-value").newest()
    kind = protobufs.descriptor(found.text, "shop.Shop")
    made = message_factory.GetMessageClass(kind)(id=7)
    made.price.units = 3
    made.at.seconds = 60
    publish(feed, [confluent(2, b"\0" + made.SerializeToString()), b"x"])
    how = {
        "schemaRegistry": registry.url,
        "schemaSubject": "shop-value",
        "messageName": "shop.Shop",
    }
    wanted = source_schema(
        parse_options({"stream": feed.name, "servers": feed.url, "valueFormat": "protobuf", **how})
    )
    assert not isinstance(wanted, str)
    rows = read(feed, wanted, valueFormat="protobuf", **how)
    assert (rows[0]["id"], rows[0]["price"]) == (7, {"units": 3})
    assert rows[1]["id"] is None


def test_a_registry_that_cannot_serialize_protobuf_is_explained(registry: RegistryServer) -> None:
    registry.register("s", 'syntax = "proto3";', number=1, kind="PROTOBUF")
    with pytest.raises(ConfigurationError, match="has to know format=serialized"):
        asking(registry, "PROTOBUF", subject="s").newest()
    with pytest.raises(NoSchemaError, match="of type PROTOBUF, not AVRO"):
        asking(registry).get("1")


def test_the_authorities_of_the_machine_are_read_once_for_all_requests(
    registry: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_again: list[Any] = []
    made = ssl.create_default_context

    def make(**options: Any) -> Any:
        read_again.append(options)
        return made(**options)

    monkeypatch.setattr("headrace.schemas.http.ssl.create_default_context", make)
    for number in (1, 2, 3):
        registry.register("s", json.dumps(POINT), number=number)
        assert asking(registry).get(str(number))
    assert len(registry.asked) == 3
    assert len(read_again) <= 1, "they may have been read before"


def test_references_without_end_are_refused(registry: RegistryServer) -> None:
    text = json.dumps(POINT)
    registry.register("self", text, number=1, references=(("a", "self", 1),))
    assert asking(registry).get("1")
    for number in range(2, REFERENCES_MAX + 5):
        registry.register(
            f"s{number}", text, number=number, references=((f"n{number}", f"s{number + 1}", 1),)
        )
    with pytest.raises(NoSchemaError, match="refers to more than 200 others"):
        asking(registry).get("2")
    registry.register("lost", text, number=900, references=(("gone", "gone", 3),))
    with pytest.raises(NoSchemaError, match="version 3 of 'gone', which is not there"):
        asking(registry).get("900")


NAMES = (
    "schema", "references", "schemaType", "id", "name", "subject", "version", "type", "fields", "namespace"
)  # fmt: skip
ANSWERS = st.recursive(
    st.none() | st.integers() | st.text() | st.sampled_from(["AVRO", "PROTOBUF", "record", "{}"]),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(NAMES), inner),
)


@given(st.dictionaries(st.sampled_from(NAMES), ANSWERS), st.sampled_from(["AVRO", "PROTOBUF"]))
def test_whatever_a_registry_answers_makes_a_schema_or_a_sentence(
    document: dict[str, Any], kind: schemas.Kind
) -> None:
    SchemaRegistry._kept.clear()
    patience = Moments().patience()
    strange = SchemaRegistry(
        Registry("http://r", "s"), kind, patience, lambda *asked: RegistryAnswer(200, document)
    )
    for newest in (False, True):
        try:
            found = strange.newest().text if newest else strange.get("1")
            assert isinstance(found, bytes)
        except (NoSchemaError, ConfigurationError) as error:
            assert len(str(error)) < 1000


@given(ANSWERS, st.lists(ANSWERS, max_size=3))
def test_whatever_schemas_name_they_are_put_into_each_other(main: Any, others: list[Any]) -> None:
    found = inlined(json.dumps(main), [json.dumps(other) for other in others])
    json.loads(found)


# What goes wrong


def test_a_registry_that_is_away_is_waited_for(registry: RegistryServer) -> None:
    registry.register("s", json.dumps(POINT), number=1)
    registry.faults += [503, 429, 500]
    assert asking(registry).get("1")
    registry.faults += [503] * 100
    moments = Moments()
    waiting = SchemaRegistry(Registry(registry.url), "AVRO", moments.patience(3.0))
    with pytest.raises(RegistryAwayError, match="answers with status 503"):
        waiting.get("2")
    assert 3.0 <= moments.now_s < 10.0


def test_nobody_at_the_address_is_waited_for_and_said(registry: RegistryServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    nobody = SchemaRegistry(Registry(f"http://127.0.0.1:{port}"), "AVRO", Moments().patience(1.0))
    with pytest.raises(RegistryAwayError, match="does not answer"):
        nobody.get("1")


def test_one_that_accepts_and_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "TIMEOUT_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(RegistryAwayError, match="does not answer"):
            SchemaRegistry(Registry(url), "AVRO", Moments().patience(0.0)).get("1")


LARGE = b'{"schema": "' + b"x" * http.ANSWER_BYTES_MAX + b'"}'


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (401, "refuses the login"),
        (403, "refuses the login"),
        ((302, b"", {"Location": "http://127.0.0.1:1/elsewhere"}), "with status 302"),
        (406, "with status 406"),
        ((200, b"<html>hello</html>", {}), "does not answer /schemas/ids/1 as a registry does"),
        ((200, b"[" * 5000, {}), "as a registry does"),
        ((404, b"<html>not here</html>", {}), "as a registry does; is this its address?"),
        ((200, LARGE, {}), "has more than 4194304 bytes"),
    ],
)
def test_what_does_not_pass_is_said_at_once(
    registry: RegistryServer, fault: Any, said: str
) -> None:
    registry.faults.append(fault)
    with pytest.raises(ConfigurationError, match="jetstream: the registry") as raised:
        asking(registry, user="me", password="hush hush").get("1")
    assert said in str(raised.value)
    assert "hush" not in str(raised.value) + repr(
        Registry(registry.url, user="me", password="hush")
    )
    assert len(registry.asked) == 1


def test_user_and_password_are_sent_and_only_to_the_registry(registry: RegistryServer) -> None:
    registry.login = "key:secret:with colon"
    registry.register("s", json.dumps(POINT), number=1)
    assert asking(registry, user="key", password="secret:with colon").get("1")
    with pytest.raises(ConfigurationError, match="refuses the login"):
        asking(registry, user="key", password="wrong").get("2")


def test_a_certificate_is_checked(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"'schemaRegistryCa'.*none\.pem"):
        http.ask(
            Registry("https://127.0.0.1:1", ca=str(tmp_path / "none.pem"), words=WORDS),
            "/schemas/ids/1",
        )


AVRO = {"valueFormat": "avro"}
URL = {"schemaRegistry": "http://r:8081"}


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ({**AVRO, "schemaRegistry": "r:8081"}, "accepted: a URL such as https://"),
        ({**AVRO, "schemaRegistry": "http://"}, "accepted: a URL such as"),
        ({**AVRO, "schemaRegistry": "http://r:99999"}, "accepted: a URL such as"),
        ({**AVRO, "schemaRegistry": "http://u:p@r"}, "without a user (schemaRegistryUser"),
        ({**AVRO, "schemaSubject": "s"}, "'schemaSubject' needs 'schemaRegistry'"),
        ({**AVRO, **URL}, "either the latest of 'schemaSubject', or 'avroSchema'"),
        ({**AVRO, **URL, "schemaSubject": "s", "avroSchema": "{}"}, "either the latest"),
        ({**AVRO, **URL, "schemaBucket": "b"}, "either 'schemaBucket' or 'schemaRegistry'"),
        (
            {**AVRO, **URL, "schemaSubject": "s", "schemaRegistrySecret": "x"},
            "needs 'schemaRegistryUser'",
        ),
        (
            {"valueFormat": "json", "valueSchema": "a int", **URL},
            "is for valueFormat=avro or protobuf",
        ),
        ({"valueFormat": "protobuf", **URL, "messageName": "m"}, "the latest of 'schemaSubject'"),
        (
            {"valueFormat": "protobuf", **URL, "messageName": "m", "descFilePath": "f"},
            "needs either 'descFilePath', or 'schemaBucket' or 'schemaRegistry'",
        ),
    ],
)
def test_options_that_do_not_fit_are_explained(raw: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        parse_options({"stream": "S", **raw})
    assert said in str(raised.value)


def test_a_registry_means_confluent_s_five_bytes_unless_a_header_is_said() -> None:
    raw = {"stream": "S", **AVRO, **URL, "schemaSubject": "s"}
    assert parse_options(raw).decoding.schema_id_from == "confluent"
    assert parse_options({**raw, "schemaIdFrom": "header"}).decoding.schema_id_from == "header"
    assert (
        parse_options({"stream": "S", **AVRO, "schemaBucket": "b"}).decoding.schema_id_from
        == "header"
    )
