"""Whether another job with the prefix of a sink's transactions lives, as far as its beats tell."""

from __future__ import annotations

import pytest

from yarrow.datastream.connectors.kafka.cluster.end_transaction import TransactionFacts
from yarrow.datastream.connectors.kafka.writing.prefix_claims import (
    WATCH_SECONDS,
    Holder,
    Mark,
    PrefixWatch,
    Sign,
    holder_of,
    owner_name,
)

SMALL, OWN, GREAT = "1" * 32, "5" * 32, "e" * 32


def beats(watch: PrefixWatch, job: str, mark: Mark, number: int, subtask: int = 0) -> None:
    """A subtask of the job is seen before and after each of some beats."""
    for epoch in range(number + 1):
        for _ in range(2):
            watch.saw(Holder(job, subtask), Sign(mark, 7, epoch), 0, 0)


def test_names_of_holders_are_read_and_others_are_not() -> None:
    for holder in (Holder(OWN), Holder(OWN, 1), Holder(OWN, 120)):
        assert holder_of("p", owner_name("p", holder)) == holder
    # Prefixes that begin alike, and names of transactions.
    for name in (
        owner_name("p-owner", Holder(OWN)),
        owner_name("pp", Holder(OWN, 2)),
        f"p-{'5' * 16}-0-3-{'6' * 16}-1",
        f"{owner_name('p', Holder(OWN))}-",
        f"{owner_name('p', Holder(OWN))}-01",
        f"{owner_name('p', Holder(OWN))}-0",
        f"{owner_name('p', Holder(OWN))}-1-1",
        "p-owner-",
    ):
        assert holder_of("p", name) is None


@pytest.mark.parametrize("job", [SMALL, GREAT])
def test_an_owner_that_beats_lives_whatever_its_id(job: str) -> None:
    watch = PrefixWatch(OWN)
    beats(watch, job, Mark.OWNS, 1)
    assert watch.owner() is None, "one beat may be the last one of a job that ends"
    beats(watch, job, Mark.OWNS, 2)
    assert watch.owner() == job
    assert not watch.is_over()


def test_a_job_lives_while_one_of_its_subtasks_does() -> None:
    watch = PrefixWatch(OWN)
    watch.saw(Holder(SMALL), Sign(Mark.RELEASED, 7, 2), 0, 0)
    watch.saw(Holder(SMALL, 1), Sign(Mark.OWNS, 7, 0), 0, 0)
    beats(watch, SMALL, Mark.OWNS, 2, 2)
    assert watch.watched == [Holder(SMALL, 1), Holder(SMALL, 2)]
    assert watch.owner() == SMALL
    # The first of them was killed, and the other one ends in order.
    for second in (1.0, WATCH_SECONDS):
        watch.saw(Holder(SMALL, 1), Sign(Mark.OWNS, 7, 0), second, second)
        watch.saw(Holder(SMALL, 2), Sign(Mark.RELEASED, 7, 3), second, second)
    assert watch.is_over() and watch.owner() is None
    assert watch.dead() == {Holder(SMALL, 1): Mark.RELEASED}


def test_of_two_jobs_that_claim_the_smaller_id_wins() -> None:
    watch = PrefixWatch(OWN)
    beats(watch, GREAT, Mark.CLAIMS, 9)
    assert watch.owner() is None
    beats(watch, SMALL, Mark.CLAIMS, 2)
    assert watch.owner() == SMALL


def test_a_new_producer_id_is_a_beat() -> None:
    watch = PrefixWatch(OWN)
    for sign in (Sign(Mark.OWNS, 0, 32_766), Sign(Mark.OWNS, 1000, 0), Sign(Mark.OWNS, 1000, 1)):
        watch.saw(Holder(GREAT), sign, 0, 0)
    assert watch.owner() == GREAT


def test_a_job_that_said_before_that_it_has_ended_is_not_watched() -> None:
    watch = PrefixWatch(OWN)
    assert watch.is_over()
    for gone in (Sign(Mark.RELEASED, 7, 9), Sign(Mark.WITHDRAWN, 7, 9), None):
        watch.saw(Holder(GREAT), gone, 0, 0)
        assert watch.is_over() and watch.watched == []


def test_a_job_that_withdraws_is_watched_no_more() -> None:
    watch = PrefixWatch(OWN)
    for gone in (Sign(Mark.WITHDRAWN, 7, 9), None):
        beats(watch, GREAT, Mark.CLAIMS, 1)
        assert not watch.is_over()
        watch.saw(Holder(GREAT), gone, 1, 1)
        assert watch.is_over() and watch.owner() is None and watch.dead() == {}


def test_a_job_that_ends_an_attempt_meanwhile_is_looked_at_again() -> None:
    watch = PrefixWatch(OWN)
    beats(watch, GREAT, Mark.OWNS, 1)
    watch.saw(Holder(GREAT), Sign(Mark.RELEASED, 7, 2), 1, 1)
    assert watch.watched == [Holder(GREAT)] and not watch.is_over() and watch.owner() is None
    # Another sink of the job, or its next attempt.
    watch.saw(Holder(GREAT), Sign(Mark.OWNS, 7, 3), 2, 2)
    assert watch.owner() == GREAT


def test_a_job_that_has_ended_meanwhile_is_neither_owner_nor_dead() -> None:
    watch = PrefixWatch(OWN)
    beats(watch, GREAT, Mark.OWNS, 1)
    for second in (1.0, WATCH_SECONDS):
        watch.saw(Holder(GREAT), Sign(Mark.RELEASED, 7, 2), second, second)
    assert watch.is_over() and watch.owner() is None and watch.dead() == {}


def test_jobs_without_beats_are_dead_and_marked_for_those_who_look_later() -> None:
    watch = PrefixWatch(OWN)
    last = "f" * 32
    for asked, epoch in ((0.0, 0), (100 + WATCH_SECONDS, 1)):
        assert not watch.watched or not watch.is_over()
        watch.saw(Holder(SMALL), Sign(Mark.OWNS, 7, 0), asked, asked + 100)
        watch.saw(Holder(GREAT), Sign(Mark.CLAIMS, 7, 0), asked, asked + 100)
        watch.saw(Holder(last), Sign(Mark.OWNS, 7, epoch), asked, asked + 100)
    assert watch.is_over() and watch.owner() is None
    # One beat is too much for a dead job, and too little for a living one.
    assert watch.dead() == {Holder(SMALL): Mark.RELEASED, Holder(GREAT): Mark.WITHDRAWN}


def test_the_time_of_slow_looks_is_not_time_of_the_watch() -> None:
    watch = PrefixWatch(OWN)
    watch.saw(Holder(SMALL), Sign(Mark.OWNS, 7, 0), 0, 100)
    assert not watch.is_over()
    # The second look was asked for too early, and answered late.
    watch.saw(Holder(SMALL), Sign(Mark.OWNS, 7, 0), 100 + WATCH_SECONDS - 0.1, 200)
    assert not watch.is_over()
    # Another job was found later.
    watch.saw(Holder(GREAT), Sign(Mark.OWNS, 7, 0), 200, 200)
    watch.saw(Holder(SMALL), Sign(Mark.OWNS, 7, 0), 200, 200)
    assert not watch.is_over()
    watch.saw(Holder(GREAT), Sign(Mark.OWNS, 7, 0), 200 + WATCH_SECONDS, 300)
    assert watch.is_over()


def test_a_job_that_had_the_prefix_begins_again_without_a_look() -> None:
    assert [mark.had_prefix for mark in Mark] == [False, True, True, False]
    assert [mark.is_living for mark in Mark] == [True, True, False, False]


def test_a_name_with_another_time_out_is_no_sign() -> None:
    assert Sign.of(None) is None
    assert Sign.of(TransactionFacts("Empty", 7, 3, 60_000)) is None
    assert Sign.of(TransactionFacts("Empty", 7, 3, Mark.OWNS)) == Sign(Mark.OWNS, 7, 3)
