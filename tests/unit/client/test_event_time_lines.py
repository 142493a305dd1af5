"""`yarrow watermark`: the lines of an answer, and what an ended job says."""

from __future__ import annotations

from typing import Any, cast

import pytest

from yarrow.cli.job_commands import show_watermarks
from yarrow.client.errors import CommandError
from yarrow.client.event_time_lines import event_time_lines
from yarrow.client.rest.rest_client import RestClient, RestError


def operator(name: str, least: int | None, **facts: Any) -> dict[str, Any]:
    plain = {"has-ended": False, "subtask": 0, "greatest": least, "idle": False}
    return {"name": name, "least": least, **plain, **facts}


ANSWER: dict[str, Any] = {
    "status": "RUNNING",
    "now": 1,
    "operators": [
        operator("Source: clicks", 1_700_000_000_123, subtask=1, greatest=1_700_000_005_000),
        operator("Window", None),
        operator("Sink", 1_000, idle=True),
        operator("Other", None, **{"has-ended": True}),
    ],
    "holders": [
        {
            "path": ["Sink", "Window", "Source: clicks"],
            "explanation": "split '7' of 'Source: clicks' (subtask 2) had its last row 42.0 s ago",
            "remedy": "Give its strategy with_idleness(...)",
        }
    ],
    "silent": ["Sink (2/2)"],
}


def test_the_operators_stand_above_the_holder() -> None:
    assert list(event_time_lines(ANSWER)) == [
        "Source: clicks  2023-11-14 22:13:20.123 in subtask 2, up to 2023-11-14 22:13:25.000",
        "Window          no watermark yet in subtask 1",
        "Sink            1970-01-01 00:00:01.000 in subtask 1, idle",
        "Other           has ended",
        "Sink (2/2) does not answer.",
        "",
        "Sink <- Window <- Source: clicks",
        "  Event time waits here: split '7' of 'Source: clicks' (subtask 2) had its last row 42.0 s ago.",
        "  Give its strategy with_idleness(...).",
    ]


def test_a_job_without_tasks_and_one_whose_event_time_has_ended() -> None:
    none = {**ANSWER, "operators": [], "holders": [], "silent": []}
    assert list(event_time_lines(none)) == ["No task of the job tells its event time. The job is RUNNING."]
    ended = {**none, "operators": [operator("Sink", None, **{"has-ended": True})]}
    assert list(event_time_lines(ended))[-1] == "Nothing holds event time back: it has ended."


def test_an_ended_job_is_refused() -> None:
    class Refusing:
        def get(self, path: str) -> Any:
            raise RestError("refused", 409, ("it is FINISHED already",))

    with pytest.raises(CommandError, match=r"event time of job 1\. it is FINISHED already"):
        show_watermarks(cast(RestClient, Refusing()), "1")
