from __future__ import annotations

import pytest

from headrace.broker.core.auth.authentication import (
    Identity,
    NoAuthentication,
    TokenAuthentication,
    User,
    UserAuthentication,
)
from headrace.broker.core.auth.permissions import Permissions
from headrace.broker.core.peer import ConnectOptions, decode_connect
from headrace.errors import ConfigurationError
from headrace.subjects import SubjectFilter


def test_without_authentication_everybody_is_welcome() -> None:
    assert not NoAuthentication().required
    assert NoAuthentication().authenticate(ConnectOptions()) is not None


def test_a_token_admits_who_has_it() -> None:
    token = TokenAuthentication("s3cret")
    assert token.required
    assert token.authenticate(ConnectOptions(auth_token="s3cret")) is not None
    assert token.authenticate(ConnectOptions(auth_token="S3cret")) is None
    assert token.authenticate(ConnectOptions(password="s3cret")) is None
    assert token.authenticate(ConnectOptions()) is None


def test_users_are_told_apart_and_named() -> None:
    permissions = Permissions()
    users = UserAuthentication([User("ann", "a", permissions), User("bob", "ü")])
    ann = users.authenticate(ConnectOptions(user="ann", password="a"))
    assert isinstance(ann, Identity)
    assert ann.name == "ann"
    assert ann.permissions is permissions
    bob = users.authenticate(ConnectOptions(user="bob", password="ü"))
    assert isinstance(bob, Identity)
    assert bob.name == "bob"
    assert users.authenticate(ConnectOptions(user="ann", password="ü")) is None
    assert users.authenticate(ConnectOptions(user="eve", password="a")) is None
    assert users.authenticate(ConnectOptions()) is None


def test_secrets_show_in_no_repr() -> None:
    options = decode_connect(b'{"user":"ann","pass":"s3cret","auth_token":"s3cret"}')
    users = UserAuthentication([User("ann", "s3cret")])
    for thing in (options, users, users._users, TokenAuthentication("s3cret")):
        assert "s3cret" not in repr(thing)


@pytest.mark.parametrize(
    ("users", "complaint"),
    [
        ([], "at least one user"),
        ([User("", "x")], "an entry without a name"),
        ([User("ann", "x"), User("ann", "y")], "'ann' is listed twice"),
    ],
)
def test_wrong_users_are_refused(users: list[User], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        UserAuthentication(users)


def test_an_empty_token_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="token: empty"):
        TokenAuthentication("")


def test_permissions_allow_and_deny() -> None:
    permissions = Permissions(
        publish_allow=SubjectFilter([b"orders.>"]),
        publish_deny=SubjectFilter([b"orders.secret"]),
        subscribe_allow=SubjectFilter([b"orders.>", b"_INBOX.>"]),
        subscribe_deny=SubjectFilter([b"orders.secret"]),
    )
    assert permissions.may_publish(b"orders.new")
    assert not permissions.may_publish(b"orders.secret")
    assert not permissions.may_publish(b"other")
    assert permissions.may_subscribe(b"orders.new")
    assert permissions.may_subscribe(b"_INBOX.x.*")
    assert not permissions.may_subscribe(b">")
    assert not permissions.may_subscribe(b"orders.secret")
    assert permissions.may_subscribe(b"orders.*")  # and what is denied is kept out of it
    assert permissions.denied_within(b"orders.*") == SubjectFilter([b"orders.secret"])
    assert permissions.denied_within(b"orders.new") is None
    assert Permissions().may_publish(b"x")
    assert Permissions().may_subscribe(b">")


def test_connect_reads_null_as_left_out_and_ignores_what_it_does_not_know() -> None:
    options = decode_connect(b'{"verbose":false,"user":null,"future":[1],"protocol":1}')
    assert not options.verbose
    assert options.pedantic
    assert options.user == ""
    assert options.protocol == 1


@pytest.mark.parametrize("document", [b"", b"{x", b"[]", b'{"verbose":1}', b'{"user":{}}', b"\xff"])
def test_connect_refuses_anything_but_such_an_object(document: bytes) -> None:
    with pytest.raises(ValueError):
        decode_connect(document)
