"""`python job.py` tells the address of its page on standard error, each address once."""

from __future__ import annotations

import pytest

from yarrow.embedded import embedded_executor as embedded


def test_an_address_is_told_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(embedded, "_told", set())
    for address in ("http://localhost:8081", "http://localhost:8081", None, "http://localhost:8082"):
        embedded._tell_address(address)
    told = capsys.readouterr()
    assert told.err.splitlines() == [
        "JobManager Web Interface: http://localhost:8081",
        "JobManager Web Interface: http://localhost:8082",
    ]
    assert told.out == ""
