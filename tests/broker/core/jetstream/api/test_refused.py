"""What is not to be had is refused, and nothing is left behind."""

from __future__ import annotations

from jetstream_world import World


def test_a_restore_is_refused_and_makes_no_stream() -> None:
    client = World().client()
    config = {"name": "T", "subjects": ["t"]}
    answer = client.api("STREAM.RESTORE.T", {"config": config, "state": {"messages": 1}})
    assert answer["error"]["err_code"] == 10062
    assert "backups are not supported" in answer["error"]["description"]
    assert answer["deliver_subject"] == ""
    assert client.api("STREAM.NAMES")["total"] == 0


def test_a_backup_is_refused_at_once() -> None:
    client = World().client()
    client.stream("S")
    answer = client.api("STREAM.SNAPSHOT.S", {"deliver_subject": "d", "chunk_size": 1024})
    assert answer["error"]["err_code"] == 10064
