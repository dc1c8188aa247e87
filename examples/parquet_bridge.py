"""The messages of a stream as Parquet files: for a Spark that cannot read streams itself, and others.

python examples/parquet_bridge.py ORDERS /data/orders [nats://127.0.0.1:4222] [--once]
python examples/parquet_bridge.py ORDERS s3://lake/orders

A file has the messages of a range of sequences, and its name says of which. So the folder itself knows where
to go on: wherever this program is killed, no message is left out and none is in two files. One process at a
time writes to a folder.
"""

import asyncio
import signal
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

import headrace

ROWS = 10_000
SECONDS = 30.0  # after which what there is becomes a file

SCHEMA = pa.schema(
    [
        ("sequence", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("subject", pa.string()),
        ("data", pa.binary()),
        ("headers", pa.map_(pa.string(), pa.string())),
    ]
)


class Folder:
    """Files of one stream, named by their first and last sequence."""

    def __init__(self, place: str) -> None:
        uri = place if "://" in place else str(Path(place).resolve())
        self._files, self._path = fs.FileSystem.from_uri(uri)
        self._files.create_dir(self._path, recursive=True)

    def position(self) -> int:
        """The last sequence that is in a file; 0 if there is none."""
        found = self._files.get_file_info(fs.FileSelector(self._path))
        names = sorted(each.base_name for each in found if each.base_name.startswith("part-"))
        while names:
            newest = names.pop()
            try:  # a file that a power cut left without its end is written again
                pq.read_metadata(f"{self._path}/{newest}", filesystem=self._files)
            except pa.ArrowInvalid:
                self._files.delete_file(f"{self._path}/{newest}")
            else:
                return int(newest.removesuffix(".parquet").rsplit("-", 1)[1])
        return 0

    def write(self, messages: list[headrace.JetStreamMessage]) -> None:
        """Write a file. It has its name when it is complete; readers pass over others (``_…``)."""
        rows = [
            {
                "sequence": message.metadata.stream_seq,
                "timestamp": message.metadata.timestamp_ns // 1000,
                "subject": message.subject,
                "data": message.payload,
                "headers": list(message.headers.items()),
            }
            for message in messages
        ]
        first, last = rows[0]["sequence"], rows[-1]["sequence"]
        name = f"part-{first:020}-{last:020}.parquet"
        table = pa.Table.from_pylist(rows, SCHEMA)
        pq.write_table(table, f"{self._path}/_{name}", filesystem=self._files)
        self._files.move(f"{self._path}/_{name}", f"{self._path}/{name}")
        print(f"{name}: {len(rows)} messages", flush=True)


async def copy(js: headrace.JetStream, name: str, folder: Folder, *, once: bool = False) -> None:
    """Write what comes after the folder's position; without end, or until all of now is written."""
    position = await asyncio.to_thread(folder.position)
    stream = await js.stream(name)
    last = (await stream.info()).state.last_seq
    if position > last:
        raise SystemExit(f"the folder is at {position}, stream {name} at {last}: it was made anew")
    reader = await stream.ordered_consumer(
        deliver_policy="by_start_sequence", opt_start_seq=position + 1
    )
    while not once or position < last:
        wait = 2.0 if once else SECONDS
        batch = list(await reader.fetch(ROWS, max_wait=wait, eager=once))
        if batch:
            await asyncio.to_thread(folder.write, batch)
            position = batch[-1].metadata.stream_seq
        elif once:
            break  # what is left was removed meanwhile


async def main(stream: str, place: str, url: str, *, once: bool = False) -> None:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)  # as Ctrl-C does
    async with headrace.connect(url, name="parquet") as connection:
        await copy(connection.jetstream(), stream, Folder(place), once=once)


if __name__ == "__main__":
    given = [each for each in sys.argv[1:] if each != "--once"]
    where = given[2] if len(given) > 2 else "nats://127.0.0.1:4222"
    try:
        asyncio.run(main(given[0], given[1], where, once="--once" in sys.argv))
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("ended; the next start goes on from here")
