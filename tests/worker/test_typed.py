from __future__ import annotations

import dataclasses
import math
from decimal import Decimal
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client import JetStreamMessage
from headrace.documents import read_json
from headrace.errors import ConfigurationError
from headrace.groups import GroupMessage
from headrace.worker import Delivered, MisfitError
from headrace.worker.typed import encoded, takes_of, wants_of


class Order(msgspec.Struct):
    id: int
    item: str


@dataclasses.dataclass
class Line:
    id: int
    item: str


class Named(TypedDict):
    id: int
    item: str


class Pydantic:
    """As a model of pydantic: known by its methods."""

    def __init__(self, number: int) -> None:
        self.id = number

    @classmethod
    def model_validate_json(cls, data: bytes) -> Pydantic:
        return cls(int(msgspec.json.decode(data)["id"]))

    def model_dump_json(self) -> str:
        return f'{{"id":{self.id}}}'


class Protobuf:
    """As a message of protobuf."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw

    @staticmethod
    def FromString(data: bytes) -> Protobuf:
        if data == b"bad":
            raise RuntimeError("Error parsing message")
        return Protobuf(data)

    def SerializeToString(self) -> bytes:
        return self.raw


class Message:
    """What the reader of arguments needs of one."""

    def __init__(self, payload: bytes) -> None:
        self.payload = payload


JSON = b'{"id":5,"item":"plum"}'


def of_struct(order: Order) -> None: ...
def of_dataclass(order: Line) -> None: ...
def of_typed_dict(order: Named) -> None: ...
def of_pydantic(order: Pydantic) -> None: ...
def of_protobuf(order: Protobuf) -> None: ...
def of_dict(order: dict[str, Any]) -> None: ...
def of_list(orders: list[int]) -> None: ...
def of_text(text: str) -> None: ...
def of_bytes(data: bytes) -> None: ...
def of_either(order: Order | None) -> None: ...


def read(function: Any, payload: bytes) -> Any:
    (argument,) = wants_of(function).arguments(Message(payload))
    return argument


def test_a_model_is_read_from_the_payload() -> None:
    assert read(of_struct, JSON) == Order(5, "plum")
    assert read(of_dataclass, JSON) == Line(5, "plum")
    assert read(of_typed_dict, JSON) == {"id": 5, "item": "plum"}
    assert read(of_pydantic, JSON).id == 5
    assert read(of_protobuf, b"\x08").raw == b"\x08"
    assert read(of_dict, JSON) == {"id": 5, "item": "plum"}
    assert read(of_list, b"[1,2]") == [1, 2]
    assert read(of_text, "Pflaume ü".encode()) == "Pflaume ü"
    assert read(of_bytes, b"\xff") == b"\xff"
    assert read(of_either, b"null") is None


@pytest.mark.parametrize(
    ("function", "payload", "why"),
    [
        (of_struct, b'{"id":"x"}', r"no Order: .*int"),
        (of_struct, b"nonsense", "no Order: .*malformed"),
        (of_dataclass, b'{"id":5}', "no Line: .*item"),
        (of_pydantic, b"{}", "no Pydantic"),
        (of_protobuf, b"bad", "no Protobuf: Error parsing message"),
        (of_dict, b"[1]", "no dict"),
        (of_list, b'["x"]', "no list"),
        (of_text, b"\xff", "no str"),
        (of_struct, b'{"id":' + b"[" * 100_000, "no Order"),
        (of_dict, b'{"id":' * 100_000, "no dict"),
    ],
)
def test_what_does_not_fit_says_what_it_is_not_and_why(
    function: Any, payload: bytes, why: str
) -> None:
    with pytest.raises(MisfitError, match=why):
        read(function, payload)


@given(st.binary(max_size=60))
def test_whatever_comes_is_read_or_does_not_fit(payload: bytes) -> None:
    for function in (of_struct, of_dict, of_list, of_text, of_dataclass, of_protobuf):
        try:
            read(function, payload)
        except MisfitError as error:
            assert "\n" not in str(error)


def test_a_handler_gets_the_message_beside_the_model_in_either_order() -> None:
    def first(message: JetStreamMessage, order: Order) -> None: ...
    def second(order: Order, message: GroupMessage) -> None: ...
    def any_of_both(message: Delivered) -> None: ...
    def either(message: JetStreamMessage | GroupMessage, more: int = 5) -> None: ...

    async def bare(message): ...  # type: ignore[no-untyped-def]

    message = Message(JSON)
    assert wants_of(first).arguments(message) == [message, Order(5, "plum")]
    assert wants_of(second).arguments(message) == [Order(5, "plum"), message]
    for function in (any_of_both, either, bare):
        assert wants_of(function).arguments(message) == [message]
        assert not wants_of(function).are_typed


def test_what_cannot_be_called_with_a_message_is_refused() -> None:
    def none() -> None: ...
    def three(a: Order, b: Order, c: JetStreamMessage) -> None: ...
    def two_models(a: Order, b: Line) -> None: ...
    def two_messages(a: JetStreamMessage, b: GroupMessage) -> None: ...
    def named(*, order: Order) -> None: ...
    def impossible(order: type[int]) -> None: ...

    def no_model(order: Message) -> None: ...

    for function in (none, three, two_models, two_messages, named, impossible, no_model):
        with pytest.raises(ConfigurationError, match="accepted are"):
            wants_of(function)


def test_an_annotation_that_is_not_there_is_named() -> None:
    def lost(order: Lost) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(ConfigurationError, match="Lost"):
        wants_of(lost)


def test_a_result_becomes_a_payload() -> None:
    assert encoded(Order(5, "plum")) == JSON
    assert encoded(Line(5, "plum")) == JSON
    assert encoded({"id": 5, "item": "plum"}) == JSON
    assert encoded(Pydantic(5)) == b'{"id":5}'
    assert encoded(Protobuf(b"\x08")) == b"\x08"
    assert encoded("ü") == "ü".encode()
    assert encoded(bytearray(b"x")) == b"x"
    with pytest.raises(ConfigurationError, match="cannot be published"):
        encoded(object())


class Price(msgspec.Struct):
    amount: float
    more: dict[str, float] | None = None


class RealPydantic(pydantic.BaseModel):
    amount: float
    more: str | None = None


@pytest.mark.parametrize(
    ("result", "where"),
    [
        ({"a": [None, math.nan]}, r"\$\.a\[1\]: nan is no number of JSON"),
        (Price(1.5, {"x": math.inf}), r"\$\.more\.x: inf is no number"),
        (math.inf, r"\$: inf is no number"),
        (RealPydantic(amount=-math.inf), r"\$\.amount: -inf is no number"),
    ],
)
def test_a_result_with_a_number_that_json_has_not_is_refused_not_made_null(
    result: object, where: str
) -> None:
    with pytest.raises(MisfitError, match=where):
        encoded(result)
    assert encoded(RealPydantic(amount=0.5)) == b'{"amount":0.5,"more":null}'
    assert encoded(Price(0.5)) == b'{"amount":0.5,"more":null}'


def test_a_decimal_read_by_a_json_schema_has_all_digits_of_its_number() -> None:
    class Exact(msgspec.Struct):
        amount: Decimal

    body = b'{"amount":12345678901234567.89}'

    def handler(price: Exact) -> None: ...

    handler.__annotations__["price"] = Exact
    (take,) = takes_of(wants_of(handler), "json")
    assert take is not None
    value = read_json(body)
    assert take(value, body) == Exact(Decimal("12345678901234567.89"))
