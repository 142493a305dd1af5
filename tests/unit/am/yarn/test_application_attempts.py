"""Which attempt is the last, and who decides when one fails: as YARN counts, and as Skein does."""

from __future__ import annotations

import pytest

from yarrow.am.yarn.application_attempts import ApplicationAttempts, uncounted
from yarrow.runtime.yarn.gateways import FinalStatus


def diagnostics(status: int) -> str:
    """As the ResourceManager of Hadoop 3.5 words it."""
    return (
        f"AM Container for appattempt_1795289268783_0002_000001 exited with  exitCode: {status}\n"
        "Failing this attempt.Diagnostics: [...]"
    )


def test_attempts_that_yarn_ended_or_lost_do_not_count() -> None:
    assert uncounted(map(diagnostics, (-100, -101, -102, -106))) == 4
    # The process failed, was killed, was over its memory, and was not heard of.
    assert uncounted([*map(diagnostics, (1, 137, 143, -104, -1000)), "", "timed out"]) == 0


def test_the_last_attempt_comes_after_as_many_as_were_lost() -> None:
    said = {1: diagnostics(-100), 2: diagnostics(137)}
    second = ApplicationAttempts(2, 2).count(said.__getitem__)
    assert (second.most, second.is_last, second.failure_is_yarns) == (3, False, True)
    assert str(second) == "attempt 2 of 3 (1 lost by YARN do not count)"
    third = ApplicationAttempts(3, 2).count(said.__getitem__)
    assert (third.most, third.is_last, third.failure_is_yarns) == (3, True, False)


@pytest.mark.parametrize(
    ("number", "limit", "last"), [(1, 1, True), (1, 2, False), (2, 2, True), (3, 2, True)]
)
def test_without_word_of_yarn_the_number_decides(number: int, limit: int, last: bool) -> None:
    attempts = ApplicationAttempts(number, limit)
    assert attempts.is_last is last and not attempts.failure_is_yarns


def test_of_a_single_attempt_nobody_is_asked() -> None:
    def asked(number: int) -> str:
        raise AssertionError(number)

    assert ApplicationAttempts(1, 1).count(asked).is_last


def test_skein_reports_an_end_but_success_from_the_last_number_on_only() -> None:
    before, at = ApplicationAttempts(1, 2), ApplicationAttempts(2, 2, uncounted=1)
    assert before.ends_by(FinalStatus.SUCCEEDED)
    assert not before.ends_by(FinalStatus.FAILED) and not before.ends_by(FinalStatus.KILLED)
    assert at.ends_by(FinalStatus.FAILED) and at.ends_by(FinalStatus.KILLED)
