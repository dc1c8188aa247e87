"""What a docstring of the asyncio clients says in the blocking ones."""

from __future__ import annotations

import re
import textwrap

__all__ = ["ProblemError", "adapted"]


class ProblemError(Exception):
    """A docstring of an asyncio client says what is not true of the blocking one."""


_RULES = [
    (re.compile(r"\basync with await "), "with "),
    (re.compile(r"\basync (with|for|def) "), r"\1 "),
    (re.compile(r"\bawait "), ""),
    (re.compile(r"\b([Aa])n async context manager"), r"\1 context manager"),
    (re.compile(r"Raises \(when awaited\):"), "Raises:"),
    (re.compile(r"a coroutine function returns"), "a function returns"),
]

_THREAD = "on the background thread, where it must not make blocking calls"

_OTHERWISE = {
    "AsyncJobsClient": [
        (
            (
                "Methods can be called concurrently, and cancelled; a cancelled request may or may not have "
                "been carried out."
            ),
            "One client may be used by several threads.",
        )
    ],
    "AtomicBatch": [("Made by", "To be filled by one thread at a time. Made by")],
    "connect": [
        (
            "or ``with connect(…)``.",
            (
                "or ``with connect(…)``.\n\n"
                "The connection lives on a background thread of its own, which ends with ``close``. "
                f"``on_event`` is called {_THREAD}."
            ),
        ),
    ],
    "Connection": [
        (
            (
                "Everything that sends is a coroutine function, and returns once the bytes are queued; they "
                "leave at the end of the event loop's turn."
            ),
            "What sends returns once the bytes are queued; they leave soon after.",
        ),
        (
            "Not thread-safe.",
            "All methods may be called from any thread of the process that made it.",
        ),
    ],
    "Connection.close": [
        (
            "ConnectionClosedError.",
            (
                "ConnectionClosedError.\n\nThe background thread ends, too. May be called twice. In a forked "
                "child it does nothing: the connection is the parent's."
            ),
        )
    ],
    "Connection.subscribe": [
        (
            "a plain function at once, on the event loop; a coroutine function one message after the other.",
            "a plain function, on a thread of the subscription's own, one message after the other.",
        )
    ],
    "Consumer.consume": [
        ("a plain or a coroutine function;", "a plain function, on a thread of its own;"),
        ("does not end the consume;", f"does not end the consume, {_THREAD};"),
        (
            (
                "1 to 1,000: coroutine functions on the event loop, plain functions on as many threads. "
                "None: one after the other, on the event loop."
            ),
            "1 to 1,000, on as many threads. None: one after the other.",
        ),
        (
            "a function of it. Of one key",
            "a function of it, called on the background thread. Of one key",
        ),
    ],
    "Consumer.listen": [
        ("a plain or a coroutine function;", "a plain function, on a thread of its own;"),
        (
            "for silence and for missing messages;",
            f"for silence and for missing messages, {_THREAD};",
        ),
    ],
    "Consumption": [
        (
            "``consumption.wait()``.",
            (
                "``consumption.wait()``. To be iterated by one thread at a time. Iterating takes up to 100 "
                "messages out of the buffer at once; ``stop`` sends back those that were not handed out."
            ),
        )
    ],
    "GroupMessage": [
        (
            "They queue the answer at once, and may be awaited or not;",
            "They queue the answer at once;",
        )
    ],
    "LongCall": [
        ("``async for``", "``for``"),
        ("``await`` it, or its ``result()``, for the result.", "``result()`` gives the result."),
        ("and is cancelled cancels", "and is interrupted cancels"),
    ],
    "long_call": [
        ("headrace.long_call(", "sync.long_call("),
        (
            "does not tell how far it is.",
            "does not tell how far it is, or is none of ``headrace.sync``.",
        ),
    ],
    "Membership": [
        (
            (
                "A coroutine function runs on the event loop. A plain function runs on one of "
                "``concurrency`` threads of the membership's own, and may block; each call has a copy of the "
                "context (``contextvars``) of ``start``. What it returns is awaited on the loop if it can be."
            ),
            (
                "It runs on one of ``concurrency`` threads of the membership's own, and may block; each call "
                "has a copy of the context (``contextvars``) of the connection's background thread."
            ),
        ),
        (
            "instead of what the group partitions by.",
            f"instead of what the group partitions by; called {_THREAD}.",
        ),
        (
            "plain functions, called when",
            f"called {_THREAD}, when",
        ),
        (
            "called with errors that do not end the membership;",
            f"called with errors that do not end the membership, {_THREAD};",
        ),
    ],
    "Membership.leave": [
        (
            "Cancelled, it cancels the handlers that run.",
            "Interrupted, it goes on waiting for them in the background.",
        )
    ],
    "Publisher": [
        (
            "Not thread-safe, but several tasks may send.",
            (
                "Several threads may send; messages are numbered in the order of their ``send`` calls, and "
                "handed to the background thread many at a time."
            ),
        )
    ],
    "Service.add_endpoint": [
        ("a plain or a coroutine function.", "a plain function, on a thread of its own."),
    ],
    "Subscription": [
        ("Messages wait in", "To be iterated by one thread at a time. Messages wait in")
    ],
    "Worker": [
        (
            "Runs a handler over the jobs of a queue, up to ``concurrency`` at once.",
            (
                "``Worker`` for a queue of ``JobsClient``: ``run`` blocks, and another thread stops it.\n\n"
                "Runs a handler over the jobs of a queue, up to ``concurrency`` at once, over its own "
                "connections."
            ),
        ),
        (
            "an awaitable that it returns is awaited.",
            "a coroutine function runs on the loop behind ``run``.",
        ),
        ("a coroutine is cancelled.", "a handler on the loop is cancelled."),
        (" Coroutine functions may have asynchronous context managers, too.", ""),
    ],
    "Worker.run": [
        ("or by SIGTERM,", "or by SIGTERM or an interrupt (Ctrl-C),"),
        ("A second SIGTERM gives", "A second one gives"),
        (
            (
                "Cancelling ends at once, after the jobs were given back, if the service answers within 2 s; "
                "otherwise others get them when their leases expire."
            ),
            "Raises ConfigurationError: it is running already, or an event loop runs in this thread.",
        ),
    ],
    "Transaction": [
        ("The methods may be plain or coroutine functions.", "The methods are plain functions.")
    ],
    "Subscription.pending_bytes": [("bytes.", "bytes, without those an iteration holds ready.")],
}
"""By class or method: sentences that are not true of the blocking one, and what is."""

WIDTH = 100
_ENTRY = re.compile(r" {4}\w[\w, ]*: ")  # of a section such as Args
_LEFT = re.compile(r"\b(async\w*|await\w*|coroutines?|tasks?|event loop\w*|thread-safe)\b")
_FINE = re.compile(
    r"\(asynchronous\) iterable|a coroutine\s+function\s+runs\s+on\s+the\s+loop|an event loop runs"
)


def adapted(text: str, where: str) -> str:
    """``text`` for the blocking client. Raises ProblemError for words that nobody has adapted."""
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    for old, new in _OTHERWISE.get(where, []):
        text = _replaced(text, old, new, where)
    left = _LEFT.search(_FINE.sub("", text))
    if left is not None:
        raise ProblemError(
            f"{where} says {left[0]!r}; say in blocking_words.py what the blocking one says"
        )
    return text


def _replaced(text: str, old: str, new: str, where: str) -> str:
    """Replace a sentence however it is broken into lines, and break its paragraph anew."""
    found = re.search(r"\s+".join(map(re.escape, old.split())), text)
    if found is None:
        raise ProblemError(f"blocking_words.py: {where} does not say {old!r} any more")
    text = text[: found.start()] + new.replace("\n", "\0") + text[found.end() :]
    lines = text.split("\n")
    first = text.count("\n", 0, found.start())
    indentation = re.match(" *", lines[first])[0]  # type: ignore[index]  # it matches anything
    following = indentation + ("    " if _ENTRY.match(lines[first]) else "")
    last = first + 1
    while last < len(lines) and re.match(rf"{following}\S", lines[last]):
        last += 1
    sentences = " ".join(line.strip() for line in lines[first:last]).split("\0\0")
    wrapped = [
        textwrap.fill(
            each,
            WIDTH,
            initial_indent=indentation,
            subsequent_indent=following,
            break_long_words=False,
            break_on_hyphens=False,
        )
        for each in sentences
    ]
    return "\n".join([*lines[:first], "\n\n".join(wrapped), *lines[last:]])
