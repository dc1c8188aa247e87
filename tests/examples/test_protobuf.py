"""The worker of ``examples`` whose messages are protobuf: its page, what it makes, what does not fit."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import guides
import peers
from example_programs import WITHIN_S, started
from headrace.client import JetStream
from waiting import until

FOLDER = guides.ROOT / "examples" / "protobuf_shop"
PAGE = guides.ROOT / "docs" / "how-to" / "protobuf.md"
TYPES = {"string": 9, "int64": 3}  # as descriptors number them


@pytest.fixture(scope="module")
def shop() -> Any:
    """What protoc made."""
    sys.path.insert(0, str(FOLDER))
    try:
        return importlib.import_module("shop_pb2")
    finally:
        sys.path.remove(str(FOLDER))


def test_the_page_shows_the_worker_and_its_messages() -> None:
    (block,) = guides.blocks_of(PAGE)
    assert block.code == (FOLDER / "protobuf_worker.py").read_text()
    assert (FOLDER / "shop.proto").read_text() in guides.text_of(PAGE)


def test_what_protoc_made_is_of_the_messages_that_are_there(shop: Any) -> None:
    said: dict[str, list[tuple[str, int, int, bool]]] = {}
    text = (FOLDER / "shop.proto").read_text()
    for name, body in re.findall(r"(?ms)^message (\w+) \{(.*?)^\}", text):
        fields = re.findall(r"(repeated )?(\w+) (\w+) = (\d+);", body)
        said[name] = [(each, int(n), TYPES[kind], bool(many)) for many, kind, each, n in fields]
    made = {
        name: [(f.name, f.number, f.type, f.is_repeated) for f in message.fields]
        for name, message in shop.DESCRIPTOR.message_types_by_name.items()
    }
    assert made == said


@pytest.mark.peer
async def test_an_order_becomes_an_invoice_and_what_does_not_fit_a_dead_letter(
    reference_server: peers.ServerProcess, js: JetStream, shop: Any, tmp_path: Path
) -> None:
    command = ("-m", "headrace", "worker", "protobuf_worker:worker")
    async with started(
        *command, url=reference_server.url, log=tmp_path / "log", folder=FOLDER
    ) as worker:

        async def is_there() -> bool:
            return "PROTOSHOP" in [name async for name in js.stream_names()]

        await until(is_there, "the worker makes no stream", within=WITHIN_S)
        good = shop.Order(customer="eve", items=["plums", "pears"])
        await js.publish("proto.orders.1", good.SerializeToString())
        await js.publish("proto.orders.2", b"\xff\xff")
        await js.publish("proto.orders.3", shop.Order(items=["gold"]).SerializeToString())
        stream = await js.stream("PROTOSHOP")

        async def all_is_done() -> bool:
            return (await stream.info()).state.messages == 6

        await until(all_is_done, "not all is handled", within=WITHIN_S)
        await worker.ended(told=True)
    invoice = shop.Invoice.FromString((await stream.get_last_message("proto.invoices.new")).payload)
    assert (invoice.customer, invoice.cents) == ("eve", 550)
    everything = [await stream.get_message(sequence) for sequence in range(1, 7)]
    reasons = {
        each.headers["Headrace-Subject"]: each.headers["Headrace-Failure"]
        for each in everything
        if each.subject == "proto.dead.billing"
    }
    assert reasons.keys() == {"proto.orders.2", "proto.orders.3"}
    assert "no Order" in reasons["proto.orders.2"]
    assert reasons["proto.orders.3"] == "KeyError('gold')"
