"""Tokens: who signed what, for how long, and what it grants."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.core.auth.authentication import Identity
from headrace.broker.core.auth.jwt import TokenError, decode_token
from headrace.broker.core.auth.jwt_auth import TokenTrust, TrustedTokens
from headrace.broker.core.auth.permissions import ResponsePermission
from headrace.broker.core.hub import Hub
from headrace.broker.core.peer import ConnectOptions, Peer
from headrace.broker.server.keys import key_checker
from headrace.clock import ManualClock
from headrace.errors import ConfigurationError
from token_forge import Key, old_token, token

NOW_S = 1_700_000_000
OPERATOR, ACCOUNT, USER = Key("O"), Key("A"), Key("U")
SIGNER, SCOPED, STRANGER = Key("A"), Key("A"), Key("A")
KEYS = key_checker()


def trust(**account: Any) -> TokenTrust:
    operator = token(OPERATOR, OPERATOR, "operator", iat=NOW_S)
    found = token(OPERATOR, ACCOUNT, "account", iat=NOW_S, **account)
    return TokenTrust((operator,), {ACCOUNT.public: found})


def trusted(clock: ManualClock | None = None, **account: Any) -> TrustedTokens:
    clock = clock or ManualClock(NOW_S * 10**9)
    return TrustedTokens(trust(**account), KEYS, KEYS.verifies, clock)


def login(tokens: TrustedTokens, jwt: str, peer: Peer | None = None) -> Identity | None:
    peer = peer or Peer("127.0.0.1", 1)
    peer.nonce = tokens.new_nonce()
    return tokens.authenticate(ConnectOptions(jwt=jwt, sig=USER.sign_text(peer.nonce)), peer)


def user(signer: Key = ACCOUNT, **content: Any) -> str:
    return token(signer, USER, "user", **{"iat": NOW_S, **content})


def test_a_user_its_account_signed_is_let_in_with_what_its_token_grants() -> None:
    content: dict[str, Any] = {
        "pub": {"allow": ["a.>"], "deny": ["a.b"]},
        "sub": {"deny": ["secret"]},
        "resp": {"max": 2, "ttl": 1000},
        "subs": 5,
        "payload": 100,
    }
    identity = login(trusted(), user(**content))
    assert identity is not None
    assert (identity.name, identity.account) == (USER.public, ACCOUNT.public)
    assert (identity.subscriptions_max, identity.payload_max) == (5, 100)
    granted = identity.permissions
    assert granted is not None
    assert granted.may_publish(b"a.c")
    assert not granted.may_publish(b"a.b")
    assert not granted.may_subscribe(b"secret")
    assert granted.responses == ResponsePermission(2, 1000)
    plain = login(trusted(), user())
    assert plain is not None
    assert plain.permissions is None


@pytest.mark.parametrize(
    ("account", "jwt"),
    [
        ({}, ""),
        ({}, "a.b.c"),
        ({}, user(STRANGER)),
        ({}, user(STRANGER, iss=ACCOUNT.public)),
        ({}, user(STRANGER, issuer_account=ACCOUNT.public)),
        ({}, user(STRANGER, issuer_account=["x"])),
        ({}, user(exp=NOW_S)),
        ({}, user()[:-20] + "A" * 20),
        ({}, token(OPERATOR, ACCOUNT, "account")),
        ({}, user(src=["10.0.0.0/8"])),
        ({}, user(src=["nonsense"])),
        ({}, user(src=3)),
        ({}, user(pub=3)),
        ({}, user(times=[{"start": "08:00:00", "end": "09:00:00"}])),
        ({}, user(allowed_connection_types=["WEBSOCKET"])),
        ({}, user(pub={"allow": ["a q"]})),
        ({}, user(sub={"allow": ["a q r"]})),
        ({}, user(sub={"allow": ["{{name()}}"]})),
        ({"revocations": {USER.public: NOW_S}}, user()),
        ({"revocations": {"*": NOW_S}}, user()),
        ({"limits": {"disallow_bearer": True}}, user(bearer_token=True)),
        ({"signing_keys": [SIGNER.public]}, user(SIGNER)),
    ],
)
def test_who_is_not_to_be_let_in_is_not(account: dict[str, Any], jwt: str) -> None:
    assert login(trusted(**account), jwt) is None


@pytest.mark.parametrize(
    ("account", "jwt"),
    [
        ({}, user(exp=NOW_S + 1)),
        ({}, user(src=["10.0.0.0/8", "127.0.0.0/8"])),
        ({}, user(allowed_connection_types=["standard"])),
        ({"revocations": {USER.public: NOW_S - 1}}, user()),
        ({"signing_keys": [SIGNER.public]}, user(SIGNER, issuer_account=ACCOUNT.public)),
    ],
)
def test_who_is_to_be_let_in_is(account: dict[str, Any], jwt: str) -> None:
    assert login(trusted(**account), jwt) is not None


def test_the_nonce_must_be_signed_by_the_user_unless_its_token_is_for_the_bearer() -> None:
    tokens = trusted()
    peer = Peer()
    peer.nonce = tokens.new_nonce()
    stolen = ConnectOptions(jwt=user(), sig=USER.sign_text("another nonce"))
    assert tokens.authenticate(stolen, peer) is None
    assert tokens.authenticate(ConnectOptions(jwt=user(), sig="?"), peer) is None
    assert tokens.authenticate(ConnectOptions(jwt=user()), peer) is None
    assert tokens.authenticate(ConnectOptions(jwt=user(bearer_token=True)), peer) is not None


def test_tokens_of_version_1_are_read_too() -> None:
    operator = old_token(OPERATOR, OPERATOR, "operator", iat=NOW_S)
    limits = {"subs": -1, "conn": -1, "data": -1, "payload": -1, "wildcards": True}
    account = old_token(OPERATOR, ACCOUNT, "account", iat=NOW_S, limits=limits)
    clock = ManualClock(NOW_S * 10**9)
    found = TokenTrust((operator,), {ACCOUNT.public: account})
    tokens = TrustedTokens(found, KEYS, KEYS.verifies, clock)
    rules: dict[str, Any] = {"pub": {"allow": ["a"]}, "sub": {}, "src": "127.0.0.0/8, 10.0.0.1/32"}
    identity = login(tokens, old_token(ACCOUNT, USER, "user", iat=NOW_S, **rules))
    assert identity is not None
    assert identity.permissions is not None
    assert not identity.permissions.may_publish(b"b")
    elsewhere = old_token(ACCOUNT, USER, "user", iat=NOW_S, src="10.0.0.0/8")
    assert login(tokens, elsewhere) is None
    forged = old_token(STRANGER, USER, "user", iat=NOW_S)
    assert login(tokens, forged) is None
    good = old_token(ACCOUNT, USER, "user", iat=NOW_S).split(".")
    header = token(ACCOUNT, USER, "user").split(".")[0]
    assert login(tokens, ".".join([header, *good[1:]])) is None  # not what the header says


def test_a_scoped_key_gives_the_permissions_of_its_scope_and_no_others() -> None:
    scope = {"kind": "user_scope", "key": SCOPED.public, "template": {"pub": {"allow": ["x"]}}}
    tokens = trusted(signing_keys=[scope])
    identity = login(tokens, user(SCOPED, issuer_account=ACCOUNT.public))
    assert identity is not None
    assert identity.permissions is not None
    assert not identity.permissions.may_publish(b"y")
    own: list[dict[str, Any]] = [
        {"pub": {"allow": [">"]}},
        {"sub": {"deny": ["x"]}},
        {"resp": {}},
        {"src": ["127.0.0.0/8"]},
        {"subs": -1},
        {"bearer_token": True},
        {"allowed_connection_types": ["STANDARD"]},
    ]
    for content in own:
        assert login(tokens, user(SCOPED, issuer_account=ACCOUNT.public, **content)) is None


def test_a_user_of_a_scope_needs_no_signature_only_where_the_scope_says_so() -> None:
    for bearer in (False, True):
        scope = {"kind": "user_scope", "key": SCOPED.public, "template": {"bearer_token": bearer}}
        tokens = trusted(signing_keys=[scope])
        options = ConnectOptions(jwt=user(SCOPED, issuer_account=ACCOUNT.public))
        assert (tokens.authenticate(options, Peer("127.0.0.1", 1)) is not None) is bearer


def test_an_operator_that_is_strict_signs_by_its_signing_keys_and_so_do_its_accounts() -> None:
    key = Key("O")
    claims: dict[str, Any] = {"signing_keys": [key.public], "strict_signing_key_usage": True}
    operator = token(OPERATOR, OPERATOR, "operator", iat=NOW_S, **claims)

    def trusting(signer: Key) -> TrustedTokens:
        account = token(signer, ACCOUNT, "account", iat=NOW_S, signing_keys=[SIGNER.public])
        clock = ManualClock(NOW_S * 10**9)
        found = TokenTrust((operator,), {ACCOUNT.public: account})
        return TrustedTokens(found, KEYS, KEYS.verifies, clock)

    tokens = trusting(key)
    assert login(tokens, user(ACCOUNT)) is None
    assert login(tokens, user(SIGNER, issuer_account=ACCOUNT.public)) is not None
    with pytest.raises(ConfigurationError, match="the operator did not sign it"):
        trusting(OPERATOR)


@pytest.mark.parametrize("version", ["3.0.0", "2.99.0", "x", "2.1"])
def test_an_operator_that_asserts_another_server_is_refused(version: str) -> None:
    operator = token(OPERATOR, OPERATOR, "operator", iat=NOW_S, assert_server_version=version)
    clock = ManualClock(NOW_S * 10**9)
    with pytest.raises(ConfigurationError, match=f"version.*{version}"):
        TrustedTokens(TokenTrust((operator,)), KEYS, KEYS.verifies, clock)


@pytest.mark.parametrize(
    "account",
    [
        {"authorization": {"auth_users": [USER.public]}},
        {"exports": [{"subject": "a.*", "type": "service", "account_token_position": 2}]},
        {"limits": {"exports": 0}, "exports": [{"subject": "a", "type": "service"}]},
        {
            "limits": {"exports": 2, "wildcards": False},
            "exports": [{"subject": "a.*", "type": "service"}],
        },
        {
            "limits": {"imports": 0},
            "imports": [{"subject": "a", "type": "stream", "account": STRANGER.public}],
        },
    ],
)
def test_what_restricts_an_account_is_kept_or_refused(account: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="resolver_preload"):
        trusted(**account)


def test_the_default_permissions_of_an_account_are_for_users_without_any() -> None:
    tokens = trusted(default_permissions={"pub": {"allow": ["x"]}})
    plain, own = login(tokens, user()), login(tokens, user(pub={"allow": ["y"]}))
    assert plain is not None
    assert own is not None
    assert plain.permissions is not None
    assert own.permissions is not None
    assert plain.permissions.may_publish(b"x")
    assert not own.permissions.may_publish(b"x")


def test_limits_and_links_of_an_account_are_those_of_its_token() -> None:
    limits = {"mem_storage": 0, "disk_storage": 1000, "streams": 3, "conn": 7, "subs": -1}
    (options,) = trusted(
        limits=limits,
        exports=[{"subject": "svc.*", "type": "service", "response_type": "Stream"}],
        imports=[
            {"subject": "pub.*", "account": "B", "type": "stream", "local_subject": "mine.$1"},
            {"subject": "ask", "account": "B", "type": "service", "to": "theirs"},
        ],
    ).accounts
    assert options.jetstream is not None
    assert (options.jetstream.max_memory, options.jetstream.max_storage) == (0, 1000)
    assert (options.jetstream.max_streams, options.connections_max) == (3, 7)
    assert options.exports[0].many_answers
    assert [(i.subject, i.local) for i in options.imports] == [
        (b"pub.*", b"mine.$1"),
        (b"theirs", b"ask"),
    ]
    assert trusted().accounts[0].jetstream is None


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: TokenTrust(("x",)), "operator: the token is not good"),
        (
            lambda: TokenTrust((token(Key("O"), OPERATOR, "operator"),)),
            "not signed by its operator",
        ),
        (
            lambda: TokenTrust(trust().operators, {"A": trust().accounts[ACCOUNT.public]}),
            "A: the token is about another account",
        ),
        (
            lambda: TokenTrust(
                trust().operators, {ACCOUNT.public: token(Key("O"), ACCOUNT, "account")}
            ),
            "the operator did not sign it",
        ),
        (lambda: trust(mappings={"a": []}), "mappings of subjects are not supported"),
        (
            lambda: trust(exports=[{"subject": "a", "type": "stream", "token_req": True}]),
            "activation tokens are not supported",
        ),
        (lambda: trust(limits={"conn": "x"}), r"Expected `int`, got `str` - at `\$.limits.conn`"),
    ],
)
def test_what_is_wrong_with_the_trusted_tokens_is_told(
    make: Callable[[], TokenTrust], complaint: str
) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        TrustedTokens(make(), KEYS, KEYS.verifies, ManualClock(NOW_S * 10**9))


@pytest.mark.parametrize(("user_exp", "account_exp"), [(60, 0), (60, 90), (90, 60), (0, 60)])
def test_a_client_is_hung_up_on_when_its_token_ends_or_its_accounts(
    user_exp: int, account_exp: int
) -> None:
    clock = ManualClock(NOW_S * 10**9)
    tokens = trusted(clock, exp=account_exp and NOW_S + account_exp)
    hub = Hub(clock, random.Random(1), authenticator=tokens)
    hub.configure_accounts(tokens.accounts)
    session = hub.connect(Peer("127.0.0.1", 1))
    info = json.loads(b"".join(session.take_output()).partition(b" ")[2])
    document = {
        "jwt": user(exp=user_exp and NOW_S + user_exp),
        "sig": USER.sign_text(info["nonce"]),
        "verbose": False,
    }
    session.receive(b"CONNECT %b\r\n" % json.dumps(document).encode())
    assert session.authenticated
    clock.advance(59)
    hub.run_timers()
    assert not session.closed
    clock.advance(1)
    hub.run_timers()
    assert session.closed
    of = b"User" if user_exp == 60 else b"Account"
    said = b"".join(session.take_output())
    assert said.endswith(b"-ERR '%b Authentication Expired'\r\n" % of)


@given(st.text() | st.lists(st.text("abcABC019-_."), min_size=3, max_size=3).map(".".join))
def test_no_text_breaks_the_reading_of_tokens(text: str) -> None:
    with pytest.raises(TokenError):
        decode_token(text, "user", KEYS.verifies)
