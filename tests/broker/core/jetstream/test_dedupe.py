from __future__ import annotations

from headrace.broker.core.jetstream.dedupe import DuplicateWindow


def test_an_id_is_known_within_the_window_only() -> None:
    window = DuplicateWindow(100)
    window.add(b"a", 7, now_ns=1000)
    assert window.find(b"a", 1099) == 7
    assert window.find(b"a", 1100) == 0
    assert len(window) == 0


def test_an_id_used_again_after_its_window_is_remembered_anew() -> None:
    window = DuplicateWindow(100)
    window.add(b"a", 1, 0)
    assert window.find(b"a", 150) == 0
    window.add(b"a", 2, 150)
    assert window.find(b"a", 200) == 2


def test_without_a_window_only_the_last_id_is_known() -> None:
    window = DuplicateWindow(0)
    window.add(b"a", 1, 0)
    assert window.find(b"a", 0) == 0
    assert window.last_id == b"a"


def test_beyond_so_many_ids_the_oldest_are_forgotten() -> None:
    window = DuplicateWindow(100, ids_max=2)
    for sequence, message_id in enumerate([b"a", b"b", b"c"], 1):
        window.add(message_id, sequence, 0)
    assert [window.find(message_id, 1) for message_id in (b"a", b"b", b"c")] == [0, 2, 3]
    assert len(window) == 2
