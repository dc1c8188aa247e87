"""Users of a configuration file both servers read: hashed passwords, and rules for queue groups."""

from __future__ import annotations

from conformance.steps import closed, connect, count_messages, drain, greet, quiet, raw, read
from conformance.table import Scenario, Settings, Table

# Of "s3cret", "tok3n", 72 times "x", and "pässword".
SECRET = "$2a$04$48mm75/41k9Q2w/VgpPyd.DY9BfziPOQIHR0Z0tSCybB8vvPVkWG."
TOKEN = "$2a$04$kGhBpTVC.eSIntVM.Fn58.kvZnQo.fKVQav7PuGXTBJzF4kPI8VUS"
LONG = "$2a$04$xZYe8Fj7kfQH1uidFHlPf.2sVMNrZbj3F0/H/tfvJ0HZmOlwR.ZSe"
WIDE = "$2a$04$8.x75h3bgnByXhxpPhUDyOAyVjXNn85grs956B7.vl5EuNw/PXS6O"

HASHED = Settings(
    nats_conf=f"""
authorization {{
  users: [
    {{user: ann, password: "{SECRET}"}}
    {{user: bob, password: plain}}
    {{user: long, password: "{LONG}"}}
    {{user: wide, password: "{WIDE}"}}
    {{user: few, password: "{SECRET}", permissions: {{publish: "open", subscribe: "open"}}}}
  ]
}}
"""
)
HASHED_TOKEN = Settings(nats_conf=f'authorization {{ token: "{TOKEN}" }}\n')
GUEST = Settings(
    nats_conf=f"""
authorization {{ users: [{{user: ann, password: "{SECRET}"}}, {{user: guest, password: g,
  permissions: {{publish: "open", subscribe: "open"}}}}] }}
no_auth_user: guest
"""
)

QUEUES = Settings(
    nats_conf="""
authorization { users: [
  {user: some, password: p,
    permissions: {subscribe: {allow: ["foo", "foo v1.*", "bar q", "baz.> >"]}}}
  {user: most, password: p,
    permissions: {subscribe: {deny: ["foo", "foo q1", "bar q", "*.x v1.>"]}}}
  {user: both, password: p,
    permissions: {subscribe: {allow: ["foo *", "a.>  prod", "a.b"], deny: ["a.b dev", "a.secret"]}}}
  {user: list, password: p, permissions: {subscribe: ["foo q"]}}
  {user: held, password: p, permissions: {subscribe: {deny: ["a.b q", "a.c v1.*", "b q"]}}}
  {user: free, password: p}
] }
"""
)

ASKED = (
    "foo", "foo q", "foo q1", "foo v1.x", "foo v1.x.y", "foo *", "foo v1.*", "foo >",
    "bar", "bar q", "bar z", "baz.a", "baz.a q", "baz.> q", "f.x", "f.x v1.a.b", "f.x z",
    "*.x v1.a", "> v1.a", "a.b", "a.b prod", "a.b dev", "a.c prod", "a.* prod", "> prod",
)  # fmt: skip


def _login(name: str, password: str) -> str:
    return (
        f'CONNECT {{"verbose":false,"headers":true,"no_responders":true,'
        f'"user":"{name}","pass":"{password}"}}\n'
    )


def _asks(user: str) -> Scenario:
    subscriptions = "".join(f"SUB {asked} {sid}\n" for sid, asked in enumerate(ASKED, 1))
    return Scenario(
        f"permissions: what {user} may subscribe to in which group",
        [greet(), raw(_login(user, "p") + subscriptions), drain()],
        settings=QUEUES,
    )


def _takes(group: str, subject: str, *, is_denied: bool) -> Scenario:
    """Who gets 20 messages: a member that joined through a wildcard, and one that may have them."""
    members = [("held",), ("free",)] if is_denied else [("held", "free")]
    expected = [0, 20] if is_denied else [20]
    join = f"SUB a.* {group} 1\nPING\n"
    messages = f"PUB {subject} 1\nx\n" * 20
    return Scenario(
        f"permissions: what a member of {group} gets of {subject} through a wildcard",
        [
            greet("held"), raw(_login("held", "p") + join, "held"), read(1, "held"),
            greet("free"), raw(_login("free", "p") + join, "free"), read(1, "free"),
            greet("p"), raw(_login("free", "p") + messages, "p"), drain("p"),
            *[count_messages(*each) for each in zip(members, expected, strict=True)],
        ],
        settings=QUEUES,
    )  # fmt: skip


def _refused(name: str, user: str, password: str, settings: Settings = HASHED) -> Scenario:
    return Scenario(name, [greet(), raw(_login(user, password) + "PING\n"), closed()], settings)


def _welcome(name: str, user: str, password: str) -> Scenario:
    return Scenario(name, [greet(), raw(_login(user, password) + "PING\n"), read()], HASHED)


GROUPS: Table = [
    *[_asks(user) for user in ("some", "most", "both", "list")],
    _takes("q", "a.b", is_denied=True),
    _takes("z", "a.b", is_denied=False),
    _takes("v1.x", "a.c", is_denied=True),
    _takes("q", "a.c", is_denied=False),
    Scenario(
        "permissions: a group gets what its rule allows, and not what is denied",
        [
            connect(user="both", **{"pass": "p"}),
            connect("b", user="most", **{"pass": "p"}),
            raw("SUB a.* prod 1\n"),
            drain(),
            raw("PUB a.b 2\nhi\nPUB a.secret 2\nno\nPUB a.c 2\nhi\n", on="b"),
            drain("b"),
            quiet(),
        ],
        settings=QUEUES,
    ),
]

HASHES: Table = [
    Scenario("hash: a greeting asks for a login", [greet(record=True)], settings=HASHED),
    _welcome("hash: the right password", "ann", "s3cret"),
    _welcome("hash: plain beside hashed", "bob", "plain"),
    _welcome("hash: beyond 72 characters nothing counts", "long", "x" * 80),
    _welcome("hash: letters beyond ASCII", "wide", "pässword"),
    _refused("hash: a wrong password", "ann", "s3cre"),
    _refused("hash: no password", "ann", ""),
    _refused("hash: the hash itself", "ann", SECRET),
    _refused("hash: the password of another", "bob", "s3cret"),
    _refused("hash: a user nobody knows", "eve", "s3cret"),
    Scenario(
        "hash: what is said with the login is done after it",
        [
            greet(),
            raw(_login("ann", "s3cret") + "SUB a 1\nPUB a 2\nhi\nPUB a 3\nyou\nPING\n"),
            read(3),
        ],
        settings=HASHED,
    ),
    Scenario(
        "hash: what is said with a wrong login is not done",
        [
            connect("b", user="bob", **{"pass": "plain"}),
            raw("SUB a 1\n", on="b"),
            drain("b"),
            greet(),
            raw(_login("ann", "wrong") + "PUB a 2\nhi\nPING\n"),
            closed(),
            quiet(on="b"),
        ],
        settings=HASHED,
    ),
    Scenario(
        "hash: permissions hold for what is said with the login",
        [
            greet(),
            raw(_login("few", "s3cret") + "SUB shut 1\nPUB shut 2\nhi\nSUB open 2\n"),
            drain(),
        ],
        settings=HASHED,
    ),
    Scenario(
        "hash: a second login changes what one may do",
        [
            greet(),
            raw(_login("few", "s3cret")),
            drain(),
            raw(_login("ann", "s3cret") + "SUB shut 1\nPUB shut 2\nhi\n"),
            drain(),
        ],
        settings=HASHED,
    ),
    Scenario(
        "hash: a second login that is wrong ends it",
        [
            greet(),
            raw(_login("bob", "plain")),
            drain(),
            raw(_login("ann", "wrong") + "PUB shut 2\nhi\nPING\n"),
            closed(),
        ],
        settings=HASHED,
    ),
    Scenario(
        "hash: a token",
        [greet(), raw('CONNECT {"verbose":false,"auth_token":"tok3n"}\nPING\n'), read()],
        settings=HASHED_TOKEN,
    ),
    Scenario(
        "hash: a wrong token",
        [greet(), raw('CONNECT {"verbose":false,"auth_token":"token"}\nPING\n'), closed()],
        settings=HASHED_TOKEN,
    ),
    Scenario(
        "hash: no token",
        [greet(), raw('CONNECT {"verbose":false}\nPING\n'), closed()],
        settings=HASHED_TOKEN,
    ),
    Scenario(
        "hash: a guest who logs in",
        [
            greet(),
            raw('CONNECT {"verbose":false}\nSUB shut 1\nPING\n'),
            read(2),
            raw(_login("ann", "s3cret") + "SUB shut 2\nPUB shut 2\nhi\n"),
            drain(),
        ],
        settings=GUEST,
    ),
]

TABLE: Table = [*GROUPS, *HASHES]
