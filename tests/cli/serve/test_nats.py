"""Files of nats-server as settings of ours."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import peers
from headrace.broker.core.auth.authentication import User
from headrace.broker.core.auth.permissions import Permissions, ResponsePermission
from headrace.broker.core.options import AssetLimits
from headrace.cli.serve.config import FileSettings, broker_options, read_file
from headrace.errors import ConfigurationError
from headrace.subjects import SubjectFilter

Read = Callable[..., FileSettings]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def write_and_read(text: str, name: str = "nats.conf", **environ: str) -> FileSettings:
        path = tmp_path / name
        path.write_text(text)
        return read_file(path, environ)

    return write_and_read


def test_a_file_of_nats_server_has_every_setting(read: Read) -> None:
    settings = read(
        """
        listen: "0.0.0.0:4333"   # where
        http: 8222
        server_name: mill
        authorization { user: ann, password: $SECRET, timeout: 0.5 }
        tls { cert_file: "a.pem", key_file: "a.key", ca_file: ca.pem, verify: true, timeout: 3,
              handshake_first: true }
        jetstream { store_dir: data }
        max_payload: 1MB, max_pending: 2MB; max_connections: 3
        max_subscriptions: 4
        max_control_line: 8kb
        ping_interval: "1m30s"
        ping_max: 5
        lame_duck_duration: "10s"
        ports_file_dir: ports
        debug: yes
        trace: off
        """,
        SECRET="s3cret",
    )
    assert settings.warnings == []
    values = settings.values
    assert (values["lame_duck_duration"], values["ports_file_dir"]) == (10.0, "ports")
    assert (values["debug"], values["trace"]) == (True, False)
    options = broker_options(values)
    assert (options.host, options.port, options.monitor_port) == ("0.0.0.0", 4333, 8222)
    assert (options.server_name, options.jetstream, options.store_dir) == ("mill", True, "data")
    assert options.users == [User("ann", "s3cret")]
    assert options.tls is not None
    assert (options.tls.certificate_file, options.tls.key_file) == ("a.pem", "a.key")
    assert (options.tls.ca_file, options.tls.verify_clients) == ("ca.pem", True)
    assert (options.tls.timeout, options.tls.handshake_first) == (3.0, True)
    assert (options.max_payload, options.outbound_bytes_max) == (1 << 20, 2 << 20)
    assert (options.connections_max, options.subscriptions_max) == (3, 4)
    assert (options.max_control_line, options.auth_timeout) == (8192, 0.5)
    assert (options.ping_interval, options.pings_out_max) == (90.0, 5)


def test_users_have_their_permissions_or_the_default_ones(read: Read) -> None:
    text = """
        authorization {
          ADMIN = { publish: ">", subscribe: ">" }
          default_permissions: { publish: "sandbox.*" }
          users: [
            { user: ann, password: a, permissions: $ADMIN }
            { user: bob, password: b, permissions: {
                publish: { allow: ["a.>", "b"], deny: "a.x" }
                subscribe: { deny: [c] } } }
            { username: eve, pass: e }
            { user: svc, password: s, permissions: {
                subscribe: "svc.*", allow_responses: { max: 5, expires: "1m" } } }
            { user: one, password: o, permissions: { publish: p, allow_responses: true } }
          ]
        }
        """
    users = {user.name: user.permissions for user in read(text).values["users"]}
    every = SubjectFilter([b">"])
    assert users == {
        "ann": Permissions(publish_allow=every, subscribe_allow=every),
        "bob": Permissions(
            SubjectFilter([b"a.>", b"b"]), SubjectFilter([b"a.x"]), None, SubjectFilter([b"c"])
        ),
        "eve": Permissions(publish_allow=SubjectFilter([b"sandbox.*"])),
        "svc": Permissions(
            publish_deny=every,
            subscribe_allow=SubjectFilter([b"svc.*"]),
            responses=ResponsePermission(5, 60_000_000_000),
        ),
        "one": Permissions(
            publish_allow=SubjectFilter([b"p"]),
            responses=ResponsePermission(1, 120_000_000_000),
        ),
    }


def test_toml_gives_the_same_permissions(read: Read) -> None:
    text = """
        [[users]]
        user = "ann"
        pass = "a"
        [users.permissions]
        publish = {allow = ["a.>"], deny = ["a.x"]}
        subscribe = "b"
        allow_responses = 3
        """
    (user,) = read(text, "headrace.toml").values["users"]
    assert user.permissions == Permissions(
        SubjectFilter([b"a.>"]),
        SubjectFilter([b"a.x"]),
        SubjectFilter([b"b"]),
        None,
        ResponsePermission(3, 120_000_000_000),
    )


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("authorization: { token: abc }", {"auth": "abc"}),
        ("http: ':8222'", {"http_port": 8222}),
        ("http: '127.0.0.2:8222'", {"http_port": 8222, "http_host": "127.0.0.2"}),
        ("listen: '[::1]:-1'", {"addr": "::1", "port": -1}),
        ("host: localhost\nport: 1", {"addr": "localhost", "port": 1}),
        ("jetstream: enabled", {"jetstream": True}),
        ("jetstream: false", {"jetstream": False}),
        ("jetstream {}", {"jetstream": True}),
        ("jetstream { disabled: true, store: d }", {"jetstream": False, "store_dir": "d"}),
        (
            "jetstream { max_mem: 1k, max_file: 1MB }",
            {"max_memory_store": 1000, "max_file_store": 1 << 20},
        ),
        (
            "jetstream { max_memory_store: -1, max_file_store: 1G }",
            {"max_file_store": 1_000_000_000},
        ),
        ("jetstream { domain: hub }", {"domain": "hub"}),
        (
            (
                "jetstream { limits { max_ack_pending: 7, max_request_batch: -1, duplicate_window: '2m',\n"
                " batch { max_inflight_per_stream: 3, max_inflight_total: 4, max_msgs: 5, timeout: '1s' } } }"
            ),
            {
                "jetstream_limits": AssetLimits(
                    max_ack_pending=7,
                    duplicate_window=120.0,
                    batches_per_stream=3,
                    batches=4,
                    batch_messages=5,
                    batch_idle=1.0,
                )
            },
        ),
        ("store_dir: d", {"store_dir": "d"}),
        ("max_payload: 1k", {"max_payload": 1000}),
        ("PORT: 5\nport: $MINE\nMINE: 2", None),
    ],
)
def test_each_way_of_writing_a_setting(
    read: Read, text: str, values: dict[str, Any] | None
) -> None:
    if values is None:
        with pytest.raises(ConfigurationError):
            read(text)
        return
    assert {**read(text).values, **values} == read(text).values


def test_how_a_pin_changes_hands_is_told_in_this_format_too(read: Read) -> None:
    assert read("pin_handover: immediate").values["pin_handover"] == "immediate"
    assert read("pin_handover = drain").values["pin_handover"] == "drain"
    assert "pin_handover" not in read("port: 5").values


@pytest.mark.parametrize(
    ("name", "text", "is_toml"),
    [
        ("a.toml", "port = 5", True),
        ("a.conf", "port = 5", False),
        ("a", "port = 5", True),
        ("a", "port: 5", False),
        ("a.json", '{"port": 5}', False),
    ],
)
def test_the_format_is_told_by_the_name_or_the_content(
    read: Read, name: str, text: str, is_toml: bool
) -> None:
    values = read(text, name).values
    assert values["port"] == 5
    assert ("jetstream" not in values) == is_toml  # without the key nats-server serves no streams


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("operator: x", "operator: needs accounts"),
        ("https: 1", "https: unknown or not supported"),
        ("pin_handover: later", ":1:1: pin_handover: "),
        ("prot: 1", ":1:1: prot: unknown or not supported"),
        ("authorization { auth_callout {} }", "authorization.auth_callout: unknown or not"),
        ("authorization { token: 123 }", "token: not accepted; it must be a non-empty text"),
        ("authorization { token: '$2a$11$x' }", ":1:17: token: begins like a bcrypt hash"),
        ("authorization { user: a }", "user and password are needed together"),
        ("authorization { users: [] }", "users: not accepted; it must be a list"),
        ("authorization { users: [{password: a}] }", "needs a user and a password, or an nkey"),
        ("authorization { users: [{nkey: U}] }", ":1:25: nkey: 'U' is not an nkey"),
        ("authorization {users: [{user: a, password: $2a$11$x}]}", "password: begins like a"),
        (
            "authorization {users: [{user: a, password: b}, {user: a, password: b}]}",
            "'a' is listed twice",
        ),
        (
            "authorization {users: [{user: a, password: b, permissions {publish {allow: []}}}]}",
            "publish.allow: empty; leave it out to allow everything",
        ),
        (
            "authorization {users: [{user: a, password: b, permissions {publish: 'a..b'}}]}",
            "publish: subject pattern 'a..b' has an empty token",
        ),
        (
            "authorization {users: [{user: a, password: b, permissions {publish: 'a q'}}]}",
            "'a q': queue groups are for subscribe, not for publish",
        ),
        (
            "authorization {users: [{user: a, password: b, permissions {pubish: 'a'}}]}",
            "pubish: no such permission; accepted are publish, subscribe and allow_responses",
        ),
        ("ping_interval: 2m", ':1:1: ping_interval: 2m is a size here; accepted is a duration'),
        ("ping_interval: soon", "ping_interval: not accepted; it must be a duration"),
        ("max_payload: big", "max_payload: not accepted; it must be a whole number"),
        ("max_conn: 0", ":1:1: max_connections: 0 is not accepted; it must be 1 or more"),
        ("debug: 1", "debug: not accepted; it must be true or false"),
        ("port: 1\nPort: 2", ":2:1: Port: given before as 'port'"),
        ("host: a\nnet: b", "host: given twice; host and net are the same setting"),
        ("listen: here", 'listen: not accepted; it must be a port or "host:port"'),
        ("jetstream: maybe", "jetstream: must be true, false, enabled"),
        ("jetstream { limits: 5 }", "limits: not accepted; it must be a map"),
        ("jetstream { limits { max_acks: 5 } }", "limits.max_acks: not a limit of JetStream"),
        ("jetstream { limits { batch { max: 5 } } }", "limits.batch.max: not a known limit; accepted are"),
        ("jetstream { limits { duplicate_window: -1 } }", "duplicate_window: not accepted"),
        ("tls: yes", "tls: not accepted; it must be a map"),
        ("tls { cert_file: a, key_file: b }\nallow_non_tls: yes", ":2:1: allow_non_tls: not supported"),
        ("allow_non_tls: 5", ":1:1: allow_non_tls: must be true or false"),
        ("feature_flags: x", ":1:1: feature_flags: must be a map"),
    ],
)  # fmt: skip
def test_what_is_wrong_or_unsafe_to_ignore_is_refused_with_its_place(
    read: Read, tmp_path: Path, text: str, complaint: str
) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(complaint)) as caught:
        read(text)
    assert str(caught.value).startswith(str(tmp_path / "nats.conf"))


def test_what_is_harmless_to_ignore_is_warned_about_with_its_place(
    read: Read, tmp_path: Path
) -> None:
    path = tmp_path / "nats.conf"
    text = "host: h\nwrite_deadline: 2s\ncluster { port: 1 }\njetstream { max_mem: 1G }\n"
    assert read(text).warnings == [
        f"{path}:2:1: write_deadline: not supported, ignored",
        f"{path}:3:1: cluster: not supported, ignored",
    ]
    ha_assets = "host: h\njetstream { limits { max_ha_assets: 3 } }\n"
    assert read(ha_assets).warnings == [
        f"{path}:2:22: jetstream.limits.max_ha_assets: not supported, ignored"
    ]
    assert read("port: 1\nport: 2\nhost: h\njetstream: on").warnings == [
        f"{path}:2:1: port: given before in this file, the last one counts"
    ]
    assert list(read("").assumed) == ["addr", "jetstream"]


def test_what_changes_nothing_here_is_taken(read: Read, tmp_path: Path) -> None:
    flags = "host: h\njetstream: on\nfeature_flags { js_ack_fc_v2: true }"
    assert read(flags).warnings == [
        f"{tmp_path / 'nats.conf'}:3:1: feature_flags: not supported, ignored"
    ]
    for text in (
        "allow_non_tls: true",  # without TLS all are served without it
        "allow_non_tls: false\ntls { cert_file: a, key_file: b }",
    ):
        assert read(f"host: h\njetstream: on\n{text}").warnings == []


def test_an_included_file_stands_beside_the_one_that_names_it(read: Read, tmp_path: Path) -> None:
    (tmp_path / "auth").mkdir()
    (tmp_path / "auth" / "users.conf").write_text("include tokens.conf")
    (tmp_path / "auth" / "tokens.conf").write_text("token: abc")
    assert read("authorization { include 'auth/users.conf' }").values["auth"] == "abc"
    with pytest.raises(
        ConfigurationError, match=r"nats\.conf:1:1: include 'x': cannot read it: No"
    ):
        read("include x")


def test_no_complaint_repeats_a_secret(read: Read) -> None:
    for text in ("authorization { token: 12345 }", "authorization { token: '$2a$11$12345' }"):
        with pytest.raises(ConfigurationError) as caught:
            read(text)
        assert "12345" not in str(caught.value)


@pytest.mark.peer
@pytest.mark.parametrize(
    "text",
    [
        'listen: ":4222"\nhttp: 8222',
        "authorization { user: a, password: b }",
        "authorization: { user: a, password: b, timeout: 1s }",
        "authorization { users = [ {user: a, password: b, permissions: {publish = a}} ] }",
        "{ 'port': 5, \"max_payload\": 5MB }",
        "P: 5\nport: $P",
        'ping_interval: "2m"; ping_max: 3',
        "jetstream: enabled",
        "jetstream { store_dir: x, sync_interval: always }",
        "write_deadline: 10s",
        "ping_interval: 2m",
        "prot: 5",
        "port: '5'",
        "port: $NOWHERE_TO_BE_FOUND",
        "authorization { token: 5 }",
        "authorization { user: a, password: b, users: [{user: c, password: d}] }",
        "authorization { users: [{user: a, password: b, colour: red}] }",
        "authorization { users: [{user: a, password: b, permissions {publish: 'a..b'}}] }",
        "debug: 1",
        "listen: here",
        "a {",
        "include 'nowhere.conf'",
        "port: 1 2",
        "allow_non_tls: true",
        "allow_non_tls: false",
        "feature_flags { js_ack_fc_v2: true }",
        "feature_flags: x",
    ],
)
def test_nats_server_accepts_and_refuses_the_same_files(
    read: Read, tmp_path: Path, text: str
) -> None:
    binary = peers.nats_server_binary()
    assert binary is not None
    try:
        read(text)
    except ConfigurationError:
        ours = False
    else:
        ours = True
    command = [str(binary), "-t", "-c", str(tmp_path / "nats.conf")]
    assert ours == (subprocess.run(command, capture_output=True, timeout=20).returncode == 0)
