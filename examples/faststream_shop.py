"""FastStream, unmodified, on a Headrace broker, and a member of a group beside its subscribers.

pip install "headrace[server]" "faststream[nats]"
headrace serve -js -sd data
python examples/faststream_shop.py
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator

from faststream import AckPolicy, FastStream
from faststream.nats import JStream, NatsBroker, PullSub
from pydantic import BaseModel

import headrace
from headrace.groups import GroupMessage, PartitioningFilter, elastic

URL = os.environ.get("NATS_URL", "nats://127.0.0.1:4222")
PRICES = {"plums": 300, "pears": 250}


class Order(BaseModel):
    customer: str
    item: str


class Invoice(BaseModel):
    customer: str
    cents: int


broker = NatsBroker(URL)
shop = JStream("FASTSHOP", declare=False)  # it is made below


@broker.subscriber(
    "fast.orders.*",
    stream=shop,
    durable="billing",
    pull_sub=PullSub(batch_size=10),
    ack_policy=AckPolicy.NACK_ON_ERROR,
)
@broker.publisher("fast.invoices.new", stream="FASTSHOP")
async def bill(order: Order) -> Invoice:
    cents = await broker.request(order.item, "price")
    return Invoice(customer=order.customer, cents=int(cents.body))


@broker.subscriber("price", queue="prices")
async def price(item: str) -> int:
    return PRICES[item]


async def mail(message: GroupMessage) -> None:
    """Invoices in order, and never two at once: what a group is for."""
    invoice = Invoice.model_validate_json(message.payload)
    print(f"{invoice.customer} owes {invoice.cents} cents", flush=True)
    message.ack()


@contextlib.asynccontextmanager
async def group() -> AsyncIterator[None]:
    """Our own connection, in the same loop, lives as long as the application."""
    async with headrace.connect(URL, name="mail") as connection:
        js = connection.jetstream()
        await js.create_or_update_stream(
            name="FASTSHOP", subjects=["fast.orders.*", "fast.invoices.*"]
        )
        keys = [PartitioningFilter("fast.invoices.*", (1,))]
        await elastic.create(js, "FASTSHOP", "mail", max_members=2, partitioning_filters=keys)
        await elastic.add_members(js, "FASTSHOP", "mail", ["a"])
        async with elastic.join(js, "FASTSHOP", "mail", "a", mail):
            yield


app = FastStream(broker, lifespan=group)

if __name__ == "__main__":
    asyncio.run(app.run())
