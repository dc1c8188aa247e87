"""A worker with two handlers. Run it with: headrace worker shop_worker:worker"""

import contextlib
import logging
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar

import msgspec

from headrace import Connection, ConsumerConfig, DeadLetter, JetStreamMessage
from headrace.worker import Delivered, Worker

log = logging.getLogger("shop")
correlation: ContextVar[str] = ContextVar("correlation", default="")


class Order(msgspec.Struct):
    customer: str
    item: str


class Invoice(msgspec.Struct):
    customer: str
    amount: int


@contextlib.asynccontextmanager
async def lifespan(connection: Connection) -> AsyncIterator[None]:
    """What handlers need is made here, and closed when the last of them has ended."""
    await connection.jetstream().create_or_update_stream(
        name="SHOP", subjects=["shop.orders.*", "shop.invoices.*", "shop.dead.*"]
    )
    yield


worker = Worker("shop", lifespan=lifespan)


@worker.consumer(
    "SHOP",
    "billing",
    config=ConsumerConfig(filter_subject="shop.orders.*", ack_wait=30),
    concurrency=8,
    order_by=lambda message: message.subject,  # those of one subject in order
    on_failure=DeadLetter("shop.dead.billing", after=5),
    publish="shop.invoices.new",
)
async def bill(order: Order) -> Invoice:
    log.info("billing %s", order.customer)
    return Invoice(order.customer, amount=len(order.item))


@worker.consumer("SHOP", "mail", config=ConsumerConfig(filter_subject="shop.invoices.*"))
def mail(message: JetStreamMessage) -> None:  # a plain function: on a thread, where it may block
    log.info("mailing %d bytes", len(message.payload))


@worker.around
@contextlib.contextmanager
def correlated(message: Delivered) -> Iterator[None]:
    """A hook: around each handler, where it runs."""
    token = correlation.set(message.headers.get("Correlation-Id") or "")
    try:
        yield
    finally:
        correlation.reset(token)
