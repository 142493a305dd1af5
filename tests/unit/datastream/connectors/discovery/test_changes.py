"""What is new and what has gone between two looks."""

from __future__ import annotations

from yarrow.datastream.connectors.discovery import gone, new


def test_new_and_gone_things_come_in_their_order() -> None:
    known, found = {"c", "a", "b"}, {"d", "b", "0"}
    assert new(known, found) == ["0", "d"]
    assert gone(known, found) == ["a", "c"]
    assert new(known, known) == gone(known, known) == []
    assert new(set(), {"a": 1}.keys()) == ["a"], "keys are compared as they are"
