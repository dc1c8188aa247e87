"""Descriptions of objects, and the cutting of content into chunks."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.objects.info import (
    NAME_BYTES_MAX,
    ObjectDamagedError,
    ObjectInfo,
    ObjectLink,
    decode_info,
    encode_info,
    meta_subject,
)
from headrace.client.objects.writer import _chunks
from headrace.errors import ConfigurationError
from headrace.subjects import is_valid_subject

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=50)
infos = st.builds(
    ObjectInfo,
    bucket=st.just("B"),
    name=names,
    description=names,
    headers=st.dictionaries(names, st.lists(names, min_size=1).map(tuple), max_size=3),
    metadata=st.dictionaries(names, names, max_size=3),
    size=st.integers(0, 2**63),
    chunks=st.integers(0, 2**32),
    digest=st.binary(min_size=32, max_size=32) | st.just(b""),
    chunk_size=st.integers(0, 2**31),
    link=st.none() | st.builds(ObjectLink, bucket=st.just("C"), name=names | st.just("")),
    deleted=st.booleans(),
    modified_ns=st.integers(0, 2**62),
    nuid=names,
    revision=st.integers(1, 2**62),
)


@given(infos)
def test_a_description_comes_back_as_it_was_stored(info: ObjectInfo) -> None:
    assert decode_info("B", encode_info(info), info.revision, info.modified_ns) == info


@given(names)
def test_every_name_makes_a_subject(name: str) -> None:
    assert is_valid_subject(meta_subject("B", name).encode())
    assert is_valid_subject(meta_subject("B", name * (NAME_BYTES_MAX // 200)).encode())


@pytest.mark.parametrize(
    ("name", "text"),
    [("", "needs a name"), ("x" * (NAME_BYTES_MAX + 1), "2049 bytes; accepted: up to 2048")],
)
def test_a_name_has_limits(name: str, text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        meta_subject("B", name)


def test_the_document_is_that_of_other_clients() -> None:
    info = ObjectInfo(
        bucket="B",
        name="n",
        headers={"K": ("a", "b")},
        size=3,
        chunks=1,
        digest=bytes(range(32)),
        chunk_size=10,
        nuid="id",
    )
    assert json.loads(encode_info(info)) == {
        "name": "n",
        "headers": {"K": ["a", "b"]},
        "options": {"max_chunk_size": 10},
        "bucket": "B",
        "nuid": "id",
        "size": 3,
        "chunks": 1,
        "digest": "SHA-256=AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
    }
    assert meta_subject("B", "n") == "$O.B.M.bg=="


def test_documents_of_other_clients_are_read_leniently() -> None:
    document = {
        "name": "n",
        "description": None,
        "headers": {"K": "one", "L": ["a", "b"]},
        "options": {"link": {"bucket": "C"}, "max_chunk_size": 5},
        "bucket": "B",
        "nuid": "id",
        "size": 3,
        "mtime": "0001-01-01T00:00:00Z",
        "chunks": 1,
        "digest": "sha-256=__79_AABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhs",
        "unheard": 1,
    }
    info = decode_info("B", json.dumps(document).encode(), 7, 8)
    assert info.headers == {"K": ("one",), "L": ("a", "b")}
    assert (info.link, info.chunk_size) == (ObjectLink("C", ""), 5)
    assert info.digest[:4] == b"\xff\xfe\xfd\xfc"
    assert (info.revision, info.modified_ns, info.deleted) == (7, 8, False)


@pytest.mark.parametrize(
    ("document", "text"),
    [
        (b"", "message 7 does not describe an object"),
        (b"[]", "does not describe"),
        (b'{"name": 5}', "does not describe"),
        (b'{"name":"n","digest":"MD5=AAAA"}', "'n' of bucket 'B' .* kind 'MD5' is not SHA-256"),
        (b'{"name":"n","digest":"SHA-256=AAAA"}', "3 bytes"),
        (b'{"name":"n","digest":"SHA-256=A"}', "digest"),
    ],
)
def test_what_is_no_description_is_named(document: bytes, text: str) -> None:
    with pytest.raises(ObjectDamagedError, match=text):
        decode_info("B", document, 7, 8)


@given(st.lists(st.binary(max_size=40)), st.integers(1, 20), st.booleans())
async def test_chunks_are_the_content_cut_anew(pieces: list[bytes], size: int, whole: bool) -> None:
    async def source() -> AsyncIterator[bytes | bytearray | memoryview]:
        for number, piece in enumerate(pieces):
            yield (piece, bytearray(piece), memoryview(piece))[number % 3]

    content = b"".join(pieces)
    chunks = [chunk async for chunk in _chunks(content if whole else source(), size)]
    assert b"".join(chunks) == content
    assert all(len(chunk) == size for chunk in chunks[:-1])
    assert not chunks or 0 < len(chunks[-1]) <= size
