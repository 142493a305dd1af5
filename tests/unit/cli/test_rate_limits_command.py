"""`yarrow rate-limits`: what it prints, what it asks for, and what it refuses."""

from __future__ import annotations

from typing import Any, cast

import pytest

from yarrow.cli.job_actions import rate_limits
from yarrow.cli.job_commands import change_rate_limit, show_rate_limits
from yarrow.client.errors import CommandError
from yarrow.client.rest.rest_client import RestClient, RestError

JOB = "a" * 32


def operator(uid: str | None, rows: float | None, size_bytes: float | None) -> dict[str, Any]:
    limits = {"rows-per-second": rows, "bytes-per-second": size_bytes}
    return {"operator-id": "b" * 32, "uid": uid, "type": "source", "name": "Source: words", **limits}


class Answers:
    """REST with the operators of one job, which notes what is changed."""

    def __init__(self, *operators: dict[str, Any]) -> None:
        self.operators = list(operators)
        self.asked: list[tuple[str, str, Any]] = []

    def get(self, path: str) -> Any:
        self.asked.append(("GET", path, None))
        return {"operators": self.operators}

    def json(self, method: str, path: str, body: Any) -> Any:
        self.asked.append((method, path, body))
        return {"operators": self.operators}


class Refusing:
    """REST that refuses."""

    def get(self, path: str) -> Any:
        raise RestError("refused", 409, ("it is FINISHED already",))

    def json(self, method: str, path: str, body: Any) -> Any:
        raise RestError("refused", 400, ("it has: words",))


def test_limits_are_printed_by_uid_or_id(capsys: pytest.CaptureFixture[str]) -> None:
    rest = Answers(operator("words", 1500.5, 2e6), operator(None, None, 2e6), operator("all", None, None))
    show_rate_limits(cast(RestClient, rest), JOB)
    assert capsys.readouterr().out.splitlines() == [
        "words : source Source: words : 1500.5 rows/s and 2e+06 bytes/s",
        f"{'b' * 32} : source Source: words : 2e+06 bytes/s",
        "all : source Source: words : no limit",
    ]
    show_rate_limits(cast(RestClient, Answers()), JOB)
    assert capsys.readouterr().out == "No source or sink of the job takes a rate limit.\n"
    assert rest.asked == [("GET", f"/jobs/{JOB}/rate-limits", None)]


def test_a_limit_is_set_and_all_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    rest = Answers(operator("words", 5, None))
    change_rate_limit(cast(RestClient, rest), JOB, "words", 5, None)
    body = {"operators": {"words": {"rows-per-second": 5, "bytes-per-second": None}}}
    assert rest.asked == [("PATCH", f"/jobs/{JOB}/rate-limits", body)]
    assert capsys.readouterr().out == "words : source Source: words : 5 rows/s\n"


def test_refusals_of_rest_are_told() -> None:
    with pytest.raises(CommandError, match=f"rate limits of job {JOB}. it is FINISHED already"):
        show_rate_limits(cast(RestClient, Refusing()), JOB)
    with pytest.raises(CommandError, match=f"limit words of job {JOB}. it has: words"):
        change_rate_limit(cast(RestClient, Refusing()), JOB, "words", 5, None)


@pytest.mark.parametrize(
    ("limited", "size_bytes", "told"),
    [
        (["words"], None, "JOB NAME ROWS"),
        ([], "5", "JOB NAME ROWS"),
        (["words", "5", "6"], None, "JOB NAME ROWS"),
        (["words", "many"], None, "ROWS must be a number above 0, or `none`"),
        (["words", "0"], None, "ROWS must be"),
        (["words", "inf"], None, "ROWS must be"),
        (["words", "5"], "-1", "--bytes must be"),
    ],
)
def test_wrong_arguments_are_refused_before_anybody_is_asked(
    limited: list[str], size_bytes: str | None, told: str
) -> None:
    with pytest.raises(CommandError, match=told):
        rate_limits(
            job_id=JOB,
            limited=limited,
            bytes_per_second=size_bytes,
            dynamic=["rest.address=192.0.2.1"],
            target=None,
            address=None,
            application_id=None,
        )
