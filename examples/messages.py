"""Plain messages: publish, subscribe, ask and answer.

python examples/messages.py [nats://127.0.0.1:4222]
"""

import asyncio
import sys

import headrace


async def main(url: str) -> None:
    async with headrace.connect(url, name="messages example") as connection:
        # Iterate a subscription …
        greetings = await connection.subscribe("greet.*")
        await connection.publish("greet.joe", b"hello", headers={"Language": "en"})
        message = await greetings.next(timeout=2)
        print(message.subject, message.payload.decode(), message.headers["Language"])

        # … or answer in a callback.
        async def double(message: headrace.Message) -> None:
            await message.respond(message.payload * 2)

        await connection.subscribe("double", callback=double)
        answer = await connection.request("double", b"21", timeout=2)
        print(answer.payload.decode())

        try:
            await connection.request("nobody.home")
        except headrace.NoRespondersError as error:
            print(error)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222"))
