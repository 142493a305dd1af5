"""Names that load their modules when they are first asked for, of a package and of a module."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from yarrow.runtime.common.public_names import loading


def test_a_name_is_loaded_once_and_then_lies_in_its_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    owner = ModuleType("an_owner")
    monkeypatch.setitem(sys.modules, "an_owner", owner)
    load = loading("an_owner", {"Backoff": "backoff"}, "yarrow.runtime.common")
    found = load("Backoff")
    assert found.__module__ == "yarrow.runtime.common.backoff" and vars(owner)["Backoff"] is found
    with pytest.raises(AttributeError, match="module 'an_owner' has no attribute 'Other'"):
        load("Other")


def test_streams_are_found_where_pyflink_has_them() -> None:
    from yarrow.datastream import data_stream
    from yarrow.datastream.keyed_stream import KeyedStream

    assert data_stream.KeyedStream is KeyedStream
    assert data_stream.CloseableIterator.__module__ == "yarrow.datastream.program.closeable_iterator"
