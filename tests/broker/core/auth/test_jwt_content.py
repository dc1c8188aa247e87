"""Types in tokens are exact: whatever is of another type is refused, and the text says where it stands."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from headrace.broker.core.auth.jwt import _KINDS, TokenError, check_content, decode_token
from headrace.broker.core.auth.jwt_auth import TokenTrust, TrustedTokens
from headrace.broker.core.peer import ConnectOptions, Peer
from headrace.broker.server.keys import key_checker
from headrace.clock import ManualClock
from token_forge import Key, token

NOW_S = 1_700_000_000
OPERATOR, ACCOUNT, USER = Key("O"), Key("A"), Key("U")
KEYS = key_checker()
SIGNERS = {"user": (ACCOUNT, USER), "account": (OPERATOR, ACCOUNT), "operator": (OPERATOR,) * 2}
VALUES: tuple[Any, ...] = (True, 1, 1.5, "true", "1", [], ["a"], [1], {}, {"a": 1})


def signed(kind: str, **content: Any) -> str:
    signer, about = SIGNERS[kind]
    return token(signer, about, kind, iat=NOW_S, **content)


def trusted(**account: Any) -> TrustedTokens:
    operator = token(OPERATOR, OPERATOR, "operator", iat=NOW_S)
    found = TokenTrust((operator,), {ACCOUNT.public: signed("account", **account)})
    return TrustedTokens(found, KEYS, KEYS.verifies, ManualClock(NOW_S * 10**9))


def bears(tokens: TrustedTokens, jwt: str) -> bool:
    """Whether the token alone lets one in, without the user's key."""
    peer = Peer("127.0.0.1", 1)
    peer.nonce = tokens.new_nonce()
    return tokens.authenticate(ConnectOptions(jwt=jwt), peer) is not None


@pytest.mark.parametrize("said", ["true", "false", "", 1, 0, 1.0, [True], [], {}, {"a": True}])
def test_a_text_or_number_for_a_switch_makes_nobody_a_bearer(said: object) -> None:
    tokens = trusted()
    assert bears(tokens, signed("user", bearer_token=True))
    assert not bears(tokens, signed("user", bearer_token=said))
    with pytest.raises(TokenError, match=re.escape("Expected `bool`, got")):
        decode_token(signed("user", bearer_token=said), "user", KEYS.verifies)


def test_what_is_null_is_as_if_it_were_not_there() -> None:
    tokens = trusted(exports=None, limits={"disallow_bearer": None}, signing_keys=None)
    assert bears(tokens, signed("user", bearer_token=True, pub={"allow": None}, src=None))
    assert not bears(tokens, signed("user", bearer_token=None))


@pytest.mark.parametrize(
    ("account", "user"),
    [
        ({}, {"src": "10.0.0.0/8, 127.0.0.1/32"}),
        ({"a_later_field": {"x": [1]}}, {"a_later_field": 7}),
        ({"signing_keys": [Key("A").public]}, {}),
        ({"exports": [{"type": "service", "subject": "a",
                       "service_latency": {"sampling": "headers", "results": "r"}}]}, {}),
    ],
)  # fmt: skip
def test_what_tokens_of_today_say_is_read(account: dict[str, Any], user: dict[str, Any]) -> None:
    assert bears(trusted(**account), signed("user", bearer_token=True, **user))


def _fields(kind: Any, path: str, wrap: Any) -> Iterator[tuple[str, Any, Any]]:
    """Each field below a type: its path as complaints show it, its type, and what puts it in place."""
    if isinstance(kind, inspect.UnionType):
        for one in kind.types:
            if isinstance(one, inspect.StructType):
                yield from _fields(one, path, wrap)
    elif isinstance(kind, inspect.VarTupleType):
        yield from _fields(kind.item_type, f"{path}[...]", lambda value: wrap([value]))
        yield f"{path}[...]", kind.item_type, lambda value: wrap([value])
    elif isinstance(kind, inspect.DictType):
        yield from _fields(kind.value_type, f"{path}[...]", lambda value: wrap({"k": value}))
        yield f"{path}[...]", kind.value_type, lambda value: wrap({"k": value})
    elif isinstance(kind, inspect.StructType):
        for field in kind.fields:
            name = field.encode_name

            def put(value: Any, name: str = name) -> Any:
                return wrap({name: value})

            yield f"{path}.{name}", field.type, put
            yield from _fields(field.type, f"{path}.{name}", put)


def _fits(kind: Any, value: Any) -> bool:
    """Whether JSON of this value is of this type, on its surface; written without the decoder."""
    types: dict[Any, Callable[[], bool]] = {
        inspect.BoolType: lambda: isinstance(value, bool),
        inspect.IntType: lambda: isinstance(value, int) and not isinstance(value, bool),
        inspect.StrType: lambda: isinstance(value, str),
        inspect.VarTupleType: lambda: (
            isinstance(value, list) and all(_fits(kind.item_type, item) for item in value)
        ),
        inspect.DictType: lambda: (
            isinstance(value, dict) and all(_fits(kind.value_type, item) for item in value.values())
        ),
        inspect.StructType: lambda: isinstance(value, dict),
        inspect.UnionType: lambda: any(_fits(one, value) for one in kind.types),
    }
    return bool(types[type(kind)]())


CASES = [
    (kind, path, kind_of_field, put)
    for kind, shapes in _KINDS.items()
    for shape in shapes
    for path, kind_of_field, put in _fields(inspect.type_info(shape), "$", lambda value: value)
]


def test_the_table_knows_what_decides_who_may_do_what() -> None:
    paths = {f"{kind}{path[1:]}" for kind, path, *_ in CASES}
    for path in (
        "user.bearer_token", "user.pub.allow", "user.sub.deny[...]", "user.resp.max", "user.subs",
        "user.src", "user.issuer_account", "user.allowed_connection_types", "user.payload",
        "account.limits.disallow_bearer", "account.limits.conn", "account.revocations[...]",
        "account.signing_keys[...].template.pub.allow[...]", "account.exports[...].token_req",
        "account.imports[...].share", "account.default_permissions.pub.deny", "account.limits.subs",
        "account.limits.tiered_limits[...].disk_storage", "operator.signing_keys[...]",
    ):  # fmt: skip
        assert path in paths


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}{case[1][1:]}")
def test_a_field_of_another_type_is_refused_wherever_it_stands(case: Any) -> None:
    kind, path, shape, put = case
    wrong = [value for value in VALUES if not _fits(shape, value)]
    assert wrong
    for value in wrong:
        content = {"type": kind, "version": 2, **put(value)}
        with pytest.raises(TokenError) as refused:
            check_content(content)
        assert path in re.sub(r"\[\d+]", "[...]", str(refused.value))


@pytest.mark.parametrize("name", ["iat", "exp", "nbf", "iss", "sub", "jti", "aud", "name", "type"])
@pytest.mark.parametrize("value", [True, 1.5, [], {}, "x", 5])
def test_the_claims_around_the_content_are_exact_too(name: str, value: object) -> None:
    good, signer = signed("user").split("."), ACCOUNT
    claims = msgspec.json.decode(_decoded(good[1]))
    if isinstance(value, str) == (name not in ("iat", "exp", "nbf")) and value in ("x", 5):
        return  # of the right type
    part = _encoded(msgspec.json.encode({**claims, name: value}))
    text = f"{good[0]}.{part}"
    with pytest.raises(TokenError, match=rf"Expected `.*`, got `.*` - at `\$\.{name}`"):
        decode_token(f"{text}.{signer.sign_text(text)}", "user", KEYS.verifies)


def _decoded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def _encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
