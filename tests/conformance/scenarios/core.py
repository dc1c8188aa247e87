"""The client protocol: greeting, verbs and their errors, routing, headers, limits, authentication."""

from __future__ import annotations

from conformance.steps import (
    closed,
    connect,
    count_messages,
    drain,
    greet,
    quiet,
    raw,
    read,
)
from conformance.table import Scenario, Settings, Table

USERS = Settings(user="alice", password="secret", auth_timeout=0.3)
TOKEN = Settings(token="s3cr3t", auth_timeout=0.3)
SMALL = Settings(max_payload=64)

VERBS: Table = [
    Scenario("a greeting tells limits and abilities", [greet(record=True)]),
    Scenario("ping is answered with pong", [raw("PING\n"), read()]),
    Scenario("verbs are read in any case", [raw("sub foo 1\npub foo 2\nhi\n"), drain()]),
    Scenario(
        "tabs and runs of blanks separate arguments",
        [raw("SUB\tfoo   1\nPUB  foo\t  2\nhi\n"), drain()],
    ),
    Scenario("a pong nobody asked for is accepted", [raw("PONG\n"), drain()]),
    Scenario(
        "verbose mode confirms every operation",
        [
            connect(verbose=True),
            raw("SUB foo 1\nPUB foo 2\nhi\nUNSUB 1\n"),
            drain(),
        ],
    ),
    Scenario("an unknown verb ends the connection", [raw("FOO bar\n"), closed()]),
    Scenario("an empty line is an unknown verb", [raw("\n"), closed(timeout=0.3)]),
    Scenario("a client may not send MSG", [raw("MSG foo 1 2\nhi\n"), closed()]),
    Scenario("a client may send +OK", [raw("+OK\n"), drain()]),
    Scenario("connect with broken JSON", [greet(), raw("CONNECT {bad\n"), closed()]),
    Scenario("connect without a document", [greet(), raw("CONNECT\nPING\n"), closed(timeout=0.3)]),
    Scenario("connect twice", [raw('CONNECT {"verbose":true}\n'), drain()]),
    Scenario("commands before connect are accepted", [greet(), raw("SUB foo 1\n"), drain()]),
    Scenario("publish without arguments", [raw("PUB\n\n"), closed()]),
    Scenario("publish without a size", [raw("PUB foo\n"), closed()]),
    Scenario("publish with too many arguments", [raw("PUB foo bar baz 2\nhi\n"), closed()]),
    Scenario("publish with a size that is no number", [raw("PUB foo two\nhi\n"), closed()]),
    Scenario("publish with a negative size", [raw("PUB foo -1\n"), closed()]),
    Scenario(
        "publish whose payload is longer than its size", [raw("PUB foo 2\nhello\n"), closed()]
    ),
    Scenario("subscribe without an id", [raw("SUB foo\n"), closed()]),
    Scenario("subscribe with too many arguments", [raw("SUB a b c d\n"), closed()]),
    Scenario("unsubscribe without an id", [raw("UNSUB\n"), closed(timeout=0.3)]),
    Scenario("unsubscribe with too many arguments", [raw("UNSUB 1 2 3\n"), closed()]),
    Scenario("unsubscribe from nothing", [raw("UNSUB 77\n"), drain()]),
    Scenario(
        "unsubscribe with a maximum that is no number",
        [raw("SUB foo 1\nUNSUB 1 x\nPUB foo 1\na\nPUB foo 1\nb\n"), drain()],
    ),
    Scenario("a control line over the limit", [raw("PUB " + "x" * 5000 + " 2\nhi\n"), closed()]),
    Scenario("a payload over the limit", [raw("PUB foo 1048577\n"), closed()]),
    Scenario("limits can be set lower", [raw("PUB foo 65\n"), closed()], settings=SMALL),
    Scenario("subscribing to a malformed subject", [raw("SUB foo..bar 1\n"), drain()]),
    Scenario("subscribing with > in the middle", [raw("SUB foo.>.bar 1\n"), drain()]),
    Scenario(
        "a star inside a token is literal",
        [
            raw("SUB foo.b*r 1\nPUB foo.bar 1\nx\nPUB foo.b*r 1\ny\n"),
            drain(),
        ],
    ),
    Scenario(
        "pedantic mode checks the subject of a publish",
        [connect(pedantic=True), raw("PUB foo.* 2\nhi\n"), drain()],
    ),
    Scenario(
        "pedantic mode checks the reply of nothing",
        [connect(pedantic=True), raw("SUB foo 1\nPUB foo bar.* 2\nhi\n"), drain()],
    ),
]

ROUTING: Table = [
    Scenario("an exact subject", [raw("SUB foo.bar 1\nPUB foo.bar 5\nhello\n"), drain()]),
    Scenario("subjects are case sensitive", [raw("SUB foo 1\nPUB FOO 1\nx\n"), drain()]),
    Scenario(
        "a reply subject travels along", [raw("SUB foo 1\nPUB foo back.here 2\nhi\n"), drain()]
    ),
    Scenario("an empty payload", [raw("SUB foo 1\nPUB foo 0\n\n"), drain()]),
    Scenario("a payload with line ends inside", [raw("SUB foo 1\nPUB foo 6\na\n\nb\n"), drain()]),
    Scenario(
        "a star takes one token",
        [raw("SUB foo.* 1\nPUB foo 1\na\nPUB foo.b 1\nb\nPUB foo.b.c 1\nc\n"), drain()],
    ),
    Scenario(
        "a tail wildcard takes one token or more",
        [raw("SUB foo.> 1\nPUB foo 1\na\nPUB foo.b 1\nb\nPUB foo.b.c 1\nc\n"), drain()],
    ),
    Scenario(
        "a star in front",
        [raw("SUB *.bar 1\nPUB foo.bar 1\na\nPUB bar 1\nb\nPUB .bar 1\nc\n"), drain()],
    ),
    Scenario(
        "publishing to a wildcard is literal",
        [
            raw("SUB foo.* 1\nPUB foo.* 1\na\nPUB foo.> 1\nb\n"),
            drain(),
        ],
    ),
    Scenario(
        "two subscriptions of one connection get one copy each",
        [raw("SUB foo 1\nSUB foo 2\nPUB foo 1\na\n"), count_messages(("a",), 2)],
    ),
    Scenario(
        "an id used twice keeps the first subject",
        [raw("SUB foo 1\nSUB bar 1\nPUB bar 1\nb\nPUB foo 1\nf\n"), drain()],
    ),
    Scenario(
        "messages reach other connections",
        [raw("SUB foo 1\n"), drain(), raw("PUB foo 2\nhi\n", on="b"), drain("b"), read()],
    ),
    Scenario(
        "without echo a connection does not hear itself",
        [connect(echo=False), raw("SUB foo 1\nPUB foo 1\nx\n"), drain()],
    ),
    Scenario(
        "one member of a queue group gets each message",
        [
            raw("SUB foo workers 1\n"),
            drain(),
            raw("SUB foo workers 1\nSUB foo workers 2\n", on="b"),
            drain("b"),
            raw("PUB foo 1\nx\n" * 20, on="c"),
            drain("c"),
            count_messages(("a", "b"), 20),
        ],
    ),
    Scenario(
        "a plain subscriber hears what a queue group hears",
        [
            raw("SUB foo workers 1\nSUB foo 2\nSUB foo others 3\nPUB foo 1\nx\n"),
            count_messages(("a",), 3),
        ],
    ),
    Scenario(
        "unsubscribed means unheard",
        [raw("SUB foo 1\nPUB foo 1\na\nUNSUB 1\nPUB foo 1\nb\n"), drain()],
    ),
    Scenario(
        "unsubscribing after a number of messages",
        [raw("SUB foo 1\nUNSUB 1 2\n" + "PUB foo 1\na\n" * 4), drain()],
    ),
    Scenario(
        "unsubscribing after fewer messages than came already",
        [raw("SUB foo 1\n" + "PUB foo 1\na\n" * 3 + "UNSUB 1 2\nPUB foo 1\nb\n"), drain()],
    ),
    Scenario(
        "a maximum counts from the beginning",
        [raw("SUB foo 1\nPUB foo 1\na\nUNSUB 1 2\nPUB foo 1\nb\nPUB foo 1\nc\n"), drain()],
    ),
    Scenario("nobody listens", [raw("SUB inbox 1\nPUB nobody inbox 2\nhi\n"), drain()]),
    Scenario(
        "that nobody listens is no delivery",
        [
            raw(
                "SUB inbox 1\nUNSUB 1 1\nPUB nobody inbox 2\nhi\nPUB inbox 2\nho\nPUB inbox 2\nhu\n"
            ),
            drain(),
        ],
    ),
    Scenario(
        "nobody listens and the client does not want to know",
        [connect(no_responders=False), raw("SUB inbox 1\nPUB nobody inbox 2\nhi\n"), drain()],
    ),
    Scenario(
        "no responders needs headers",
        [greet(), raw('CONNECT {"no_responders":true}\n'), closed(timeout=0.3)],
    ),
    Scenario(
        "headers travel untouched",
        [
            raw("SUB foo 1\nHPUB foo 24 26\nNATS/1.0\nKey:  a\tb \n\nhi\n"),
            closed(timeout=0.2),
        ],
    ),
    Scenario(
        "headers with repeated keys and no payload",
        [raw("SUB foo 1\nHPUB foo back 24 24\nNATS/1.0\nA: 1\nA: 2\n\n\n"), drain()],
    ),
    Scenario(
        "a client without headers gets the payload alone",
        [
            connect("b", headers=False, no_responders=False),
            raw("SUB foo 1\n", on="b"),
            drain("b"),
            raw("HPUB foo 18 20\nNATS/1.0\nA: b\n\nhi\n"),
            drain(),
            read(on="b"),
        ],
    ),
    Scenario(
        "a client without headers may not send them",
        [
            connect(headers=False, no_responders=False),
            raw("HPUB foo 18 20\nNATS/1.0\nA: b\n\nhi\n"),
            closed(timeout=0.3),
        ],
    ),
    Scenario("a header longer than the whole", [raw("HPUB foo 20 10\n"), closed()]),
    Scenario("a header size that is no number", [raw("HPUB foo x 10\n"), closed()]),
    Scenario("a header publish with too few arguments", [raw("HPUB foo 10\n"), closed()]),
    Scenario("nothing more comes", [raw("SUB foo 1\n"), drain(), quiet()]),
]

AUTHENTICATION: Table = [
    Scenario("a greeting asks for credentials", [greet(record=True)], settings=USERS),
    Scenario("no credentials", [greet(), raw("CONNECT {}\nPING\n"), closed()], settings=USERS),
    Scenario(
        "a wrong password",
        [greet(), raw('CONNECT {"user":"alice","pass":"guess"}\nPING\n'), closed()],
        settings=USERS,
    ),
    Scenario(
        "a wrong user",
        [greet(), raw('CONNECT {"user":"eve","pass":"secret"}\nPING\n'), closed()],
        settings=USERS,
    ),
    Scenario(
        "the right password",
        [greet(), raw('CONNECT {"user":"alice","pass":"secret"}\nPING\n'), read()],
        settings=USERS,
    ),
    Scenario("commands before authentication", [greet(), raw("PING\n"), closed()], settings=USERS),
    Scenario("too slow to authenticate", [greet(), closed(timeout=2.0)], settings=USERS),
    Scenario(
        "a wrong token",
        [greet(), raw('CONNECT {"auth_token":"guess"}\nPING\n'), closed()],
        settings=TOKEN,
    ),
    Scenario(
        "the right token",
        [greet(), raw('CONNECT {"auth_token":"s3cr3t"}\nPING\n'), read()],
        settings=TOKEN,
    ),
]

TABLE: Table = [*VERBS, *ROUTING, *AUTHENTICATION]
