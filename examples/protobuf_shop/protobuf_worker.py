"""A worker whose messages are protobuf: an order in, an invoice out.

headrace worker protobuf_worker:worker

shop_pb2.py is made of shop.proto: protoc --python_out=. --pyi_out=. shop.proto
"""

import contextlib
from collections.abc import AsyncIterator

from shop_pb2 import Invoice, Order

from headrace import Connection, ConsumerConfig, DeadLetter
from headrace.worker import Worker

CENTS = {"plums": 300, "pears": 250}


@contextlib.asynccontextmanager
async def lifespan(connection: Connection) -> AsyncIterator[None]:
    await connection.jetstream().create_or_update_stream(
        name="PROTOSHOP",
        subjects=["proto.orders.*", "proto.invoices.*", "proto.dead.*"],
    )
    yield


worker = Worker("shop", lifespan=lifespan)


@worker.consumer(
    "PROTOSHOP",
    "billing",
    config=ConsumerConfig(filter_subject="proto.orders.*"),
    on_failure=DeadLetter("proto.dead.billing", after=5, never=(KeyError,)),
    publish="proto.invoices.new",
)
async def bill(order: Order) -> Invoice:
    return Invoice(customer=order.customer, cents=sum(CENTS[item] for item in order.items))
