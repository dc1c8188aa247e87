"""NKEYs: signatures as RFC 8032 has them, and a server that accepts them."""

from __future__ import annotations

import base64
import binascii
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import peers
from headrace.client import connect
from headrace.client.net.nkeys import KeyPair, PlainSigner, read_credentials
from headrace.client.net.options import Options
from headrace.errors import AuthorizationError, ConfigurationError


def seed_of(raw: bytes, kind: int = 20 << 3) -> str:
    first = 18 << 3 | kind >> 5
    body = bytes([first, (kind & 31) << 3]) + raw
    checksum = binascii.crc_hqx(body, 0).to_bytes(2, "little")
    return base64.b32encode(body + checksum).rstrip(b"=").decode()


SEED = seed_of(bytes(range(32)))


@pytest.mark.parametrize(
    ("secret", "public", "message", "signature"),
    [
        (  # TEST 1
            "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
            "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
            "",
            "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
        ),
        (
            "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
            "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
            "72",
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
        ),
    ],
)
@pytest.mark.parametrize("plain", [False, True], ids=["cryptography", "plain Python"])
def test_signatures_are_those_of_the_rfc(
    secret: str,
    public: str,
    message: str,
    signature: str,
    plain: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if plain:
        monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric.ed25519", None)
    pair = KeyPair(seed_of(bytes.fromhex(secret)))
    assert isinstance(pair._signer, PlainSigner) is plain
    assert pair.public_key_bytes.hex() == public
    assert pair.sign(bytes.fromhex(message)).hex() == signature


def test_a_key_shows_its_public_part_only() -> None:
    pair = KeyPair(SEED)
    assert SEED.startswith("SU")
    assert pair.public_key.startswith("U")
    assert SEED not in repr(pair)


@pytest.mark.parametrize(
    ("seed", "reason"),
    [
        ("not base 32!", "base 32"),
        (SEED[:-1] + ("A" if SEED[-1] != "A" else "B"), "checksum"),
        (SEED[:20], "checksum|base 32"),
        (seed_of(bytes(32), kind=0), "not a user's seed"),
    ],
)
def test_a_bad_seed_is_refused_without_showing_it(seed: str, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason) as caught:
        KeyPair(seed)
    assert seed not in str(caught.value)


def test_a_credentials_file_holds_a_jwt_and_a_seed(tmp_path: Path) -> None:
    file = tmp_path / "me.creds"
    file.write_text(
        "-----BEGIN NATS USER JWT-----\neyJ.abc.def\n------END NATS USER JWT------\n\n"
        "************************* IMPORTANT *************************\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{SEED}\n------END USER NKEY SEED------\n"
    )
    credentials = read_credentials(file)
    assert credentials.jwt == "eyJ.abc.def"
    assert credentials.key.public_key == KeyPair(SEED).public_key
    assert "eyJ" not in repr(credentials)
    file.write_text("-----BEGIN NATS USER JWT-----\na\n------END NATS USER JWT------\n")
    with pytest.raises(ConfigurationError, match="USER NKEY SEED"):
        read_credentials(file)
    with pytest.raises(ConfigurationError, match="No such file"):
        read_credentials(tmp_path / "none")


@given(st.binary(min_size=32, max_size=32), st.binary(max_size=100))
def test_both_ways_to_sign_agree(seed: bytes, data: bytes) -> None:
    pair, plain = KeyPair(seed_of(seed)), PlainSigner(seed)
    assert pair.public_key_bytes == plain.public_key_bytes
    assert pair.sign(data) == plain.sign(data)


def test_a_credentials_file_may_come_from_anywhere(tmp_path: Path) -> None:
    file = tmp_path / "me.creds"
    file.write_bytes(
        b"\xef\xbb\xbf# a remark\r\n---BEGIN USER NKEY SEED---\r\n  %b  \r\n---END USER NKEY SEED---\r\n"
        b"-----BEGIN NATS USER JWT-----\r\n\r\neyJ.a_b.c-d\r\n------END NATS USER JWT------"
        % SEED.encode()
    )
    credentials = read_credentials(str(file))
    assert credentials.jwt == "eyJ.a_b.c-d"
    assert credentials.key.public_key == KeyPair(SEED).public_key


async def test_credentials_are_read_again_for_each_connection_and_signed(tmp_path: Path) -> None:
    file = tmp_path / "me.creds"
    file.write_text(
        "-----BEGIN NATS USER JWT-----\nfirst\n------END NATS USER JWT------\n"
        f"-----BEGIN USER NKEY SEED-----\n{SEED}\n------END USER NKEY SEED------\n"
    )
    options = Options(credentials_file=file)
    said = options.credentials("nonce")
    assert (said.jwt, said.nkey) == ("first", "")
    signature = base64.urlsafe_b64decode(said.signature + "==")
    assert signature == KeyPair(SEED).sign(b"nonce")
    file.write_text(file.read_text().replace("first", "renewed"))
    assert options.credentials("nonce").jwt == "renewed"


@pytest.mark.peer
async def test_a_server_accepts_the_key_and_no_other(
    nats_server: Callable[..., peers.ServerProcess],
) -> None:
    public = KeyPair(SEED).public_key
    server = nats_server(config=f"authorization {{ users: [ {{ nkey: {public} }} ] }}")
    async with connect(server.url, nkey_seed=SEED) as connection:
        await connection.flush()
    with pytest.raises(AuthorizationError):
        await connect(server.url, nkey_seed=seed_of(bytes(32)))
    with pytest.raises(ConfigurationError, match="one way"):
        connect(server.url, nkey_seed=SEED, token="t")
