"""What has one mechanism has no second: by names, calls and imports, as far as these tell."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src" / "headrace"
PAGE = (ROOT / "docs" / "architecture.md").read_text()
TABLE = PAGE.partition("## One of each")[2].partition("What looks like a second one")[0]


class Mechanism(NamedTuple):
    """One job.

    Attributes:
        home: the module, or the room, that does it.
        sign: what a second one would look like.
        others: files that look like it, and why each is none, or stays.
    """

    home: str
    sign: str
    others: Mapping[str, str] = MappingProxyType({})


MECHANISMS = [
    Mechanism(
        "retries",
        r"2(?:\.0)? \*\* ?(?:\(|min|max)|\bclass Patience\b|_s \* 2\b",
    ),
    Mechanism(
        "quantities",
        r"def _?(?:go_duration|parse_duration|duration_ns|parse_size|read_size|parse_moment)\b"
        r"|\(\\d\+\)h\)",
    ),
    Mechanism("cron", r"class \w*Cron\b|def parse_cron\b"),
    Mechanism(
        "files",
        r"\bos\.(?:fsync|fdatasync|replace|rename)\("
        r"|\b(?:part|partial|written|unfinished|draft|temporary|made|new)\.(?:replace|rename)\(",
        {
            "broker/store/io/files.py": "the store's port, where tests let each call fail",
            "client/jetstream/backup.py": "one of two files that are synced together",
            "demo/plot.py": "the demo imports what users may import",
            "demo/results.py": "the demo imports what users may import",
            "jobs/store/transfer.py": "written as it is read, under a name that nobody had",
            "spark/tasks/routing.py": "rows of one try of a batch, made again where they are lost",
            "spark/ending.py": "a mark for the processes of one run, which may be lost with them",
        },
    ),
    Mechanism(
        "web",
        r"\b(?:asyncio\.)?start_server\(|\bHTTPServer\(|\bhttp\.server\b|\buvicorn\.(?:Server|Config|run)\b",
        {"testing/link.py": "stands before a server of NATS, not of HTTP"},
    ),
    Mechanism(
        "locks",
        r"class \w*(?:Lease|Lock|Tenure)\b",
        {
            "broker/store/io/files.py": "of a directory, by its file system",
            "groups/member/lease.py": "what a member may handle, message by message",
        },
    ),
    Mechanism(
        "handling.dead_letter_headers",
        r"\"Headrace-(?:Failure|Reason|Group|Consumer|Subject|Stream|Sequence|Attempts|Sink|Row|Headers"
        r"|Truncated)\"",
    ),
    Mechanism("handling.failing", r"import (?:.*\W)?decide\b|\bdecide\(self\._policy"),
    Mechanism(
        "handling.failure_policy",
        r"class (?:Stop|Retry|DeadLetter)\b",
        {
            "pipeline/failures/supervising.py": "of a query, which has no message",
        },
    ),
    Mechanism("handling.key_order", r"class (?:Lanes|Line|WaitingByKey)\b"),
    Mechanism("handling.waiting", r"import (?:.*\W)?(?:Lanes|Line)\b"),
    Mechanism(
        "handling.calls",
        r"\b(?:await )?_?(?:handler|callback)\((?:message|job)\)|except CALLBACK_ERRORS\b|\bis_ending\(",
        {
            "client/blocking/services.py": "answers a request: what fails goes to who asked",
            "client/services.py": "answers a request: what fails goes to who asked",
            "client/spans.py": "makes a function of a function, with a span around",
            "client/subscription.py": "of messages that nobody acknowledges: there is nothing to see to",
            "handling/callbacks.py": "says what ends a lane",
            "handling/failing.py": "calls again what a lane has given it",
            "jobs/client/running.py": "makes a function of a handler, with its hooks around",
        },
    ),
    Mechanism(
        "handling.lanes",
        r"class \w*LaneTasks\b|create_task\(self\._lane\("
        r"|create_task\((?:self\.)?_?(?:handler|callback|calls\.work)\(",
    ),
    Mechanism(
        "handling.threads",
        r"SimpleQueue|\bcop(?:y|ied)\(\)\.run\(handler",
        {"jobs/store/sqlite.py": "the one thread that writes"},
    ),
    Mechanism("jobs.service.moves", r"\"store_jobs\""),
    Mechanism("jobs.service.storing", r"\"insert_messages\""),
    Mechanism(
        "jobs.http.router",
        r"from starlette\.(?:routing|applications) import|\bclass Router\b",
        {
            "broker/core/net/router.py": "of subjects, not of requests",
            "console/answers.py": "names in the console's paths may have slashes",
            "console/app.py": "names in the console's paths may have slashes",
        },
    ),
    Mechanism("jobs.service.auditing", r"\"insert_event\""),
    Mechanism("blocking", r"\bupdate_wrapper\(|\bdef (?:blocking|iterating|anywhere)\("),
    Mechanism(
        "client.net.handshake",
        r"\"permissions violation\"|\"authorization violation",
    ),
    Mechanism("client.net.servers", r"class \w*ServerPool\b|no server could be reached\""),
    Mechanism("api.errors", r"\b1000[89]\b|\b10158\b|def is_leaderless\b"),
    Mechanism("wire.headers", r"b\"NATS/1\.0 503\"|status_of\(.*\) == 503"),
    Mechanism(
        "client.jetstream.pull", r"class Meaning\b|b\"(?:Consumer Deleted|Leadership|Shutdown)"
    ),
    Mechanism("client.net.waiting", r"\b_asyncio_future_blocking = False|class \w*TimeLimits\b"),
    Mechanism("jobs.states", r"\bState\.INFLIGHT, Event\."),
    Mechanism("jobs.service.fanning", r"\"accepted_messages\"|\bclass Fanned\b"),
    Mechanism("jobs.store.grouping", r"class \w*Group(?:ed)?Writer\b"),
    Mechanism("identity", r"class (?:MessageIdentity|Sameness)\b|\.timestamp_ns == noted"),
    Mechanism("findings", r"class Findings\b"),
    Mechanism(
        "sockets",
        r"\.sock_connect\(|\.start_tls\(",
        {"client/net/link.py": "hands over a link that reads already"},
    ),
    Mechanism("toml_lines", r"def find_lines?\b|\\\[\\\[\?"),
]


def of(home: str) -> tuple[Path, ...]:
    """The file of a module, or those of a room."""
    path = SRC / home.replace(".", "/")
    return tuple(path.rglob("*.py")) if path.is_dir() else (path.with_suffix(".py"),)


def seconds(mechanism: Mechanism, files: Iterable[tuple[str, str]]) -> set[str]:
    """Of these files, each with its text, those that look like a second one."""
    sign = re.compile(mechanism.sign)
    home = {path.relative_to(SRC).as_posix() for path in of(mechanism.home)}
    return {name for name, text in files if name not in home and sign.search(text)}


@pytest.fixture(scope="module")
def files() -> list[tuple[str, str]]:
    paths = sorted(SRC.rglob("*.py"))
    assert len(paths) > 500
    return [(path.relative_to(SRC).as_posix(), path.read_text()) for path in paths]


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda each: each.home)
def test_nothing_looks_like_a_second_mechanism(
    mechanism: Mechanism, files: list[tuple[str, str]]
) -> None:
    assert seconds(mechanism, files) == mechanism.others.keys()


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda each: each.home)
def test_the_home_of_each_looks_like_it(mechanism: Mechanism) -> None:
    """Else a sign has become old, and finds no second one either."""
    sign = re.compile(mechanism.sign)
    assert any(sign.search(path.read_text()) for path in of(mechanism.home))


@pytest.mark.parametrize(
    ("home", "text"),
    [
        ("retries", "wait = min(5.0, 0.1 * 2.0 ** min(attempt, 16))"),
        ("quantities", "def _go_duration(text: str) -> float: ..."),
        ("files", "os.replace(new, path)"),
        ("locks", "class BucketLease:"),
        ("handling.dead_letter_headers", '("Headrace-Reason", reason)'),
        ("files", "partial.replace(path)"),
        ("web", "import http.server"),
        ("handling.calls", "result = callback(message)"),
        ("handling.lanes", "loop.create_task(self._handler(message))"),
        ("handling.failing", "from ....handling.failure_policy import Again, decide"),
        ("handling.waiting", "from ....handling.key_order import Lanes, Line"),
        ("handling.threads", "self._waiting = queue.SimpleQueue()"),
        (
            "blocking",
            "def blocking(method: Method[P, Coroutine[Any, Any, R]]) -> Method[P, R]: ...",
        ),
        ("api.errors", "_NOT_NOW: Final = frozenset({10008, 10009})"),
        ("wire.headers", "if headers and status_of(headers) == 503:"),
        ("client.jetstream.pull", 'ended = b"Consumer Deleted" in status'),
        ("client.net.waiting", "    _asyncio_future_blocking = False"),
        ("client.net.handshake", 'text.lower().startswith("permissions violation")'),
        ("jobs.http.router", "from starlette.applications import Starlette"),
    ],
)
def test_a_second_mechanism_is_found(home: str, text: str) -> None:
    mechanism = next(each for each in MECHANISMS if each.home == home)
    assert seconds(mechanism, [("somewhere.py", text)]) == {"somewhere.py"}


def test_the_page_names_a_module_for_each_job() -> None:
    named = re.findall(r"(?m)^\| .* \| `headrace\.([\w.]+)` \|$", TABLE)
    assert len(named) > 15
    assert [name for name in named if not any(path.is_file() for path in of(name))] == []
    assert {each.home for each in MECHANISMS} == set(named), "docs/architecture.md, One of each"
