"""Whether another job with the prefix of a sink's transactions lives, as far as its beats tell."""

from __future__ import annotations

import pytest

from yarrow.datastream.connectors.kafka.cluster.end_transaction import TransactionFacts
from yarrow.datastream.connectors.kafka.writing.prefix_claims import (
    WATCH_SECONDS,
    Mark,
    PrefixWatch,
    Sign,
    job_of,
    owner_name,
)

SMALL, OWN, GREAT = "1" * 32, "5" * 32, "e" * 32


def beats(watch: PrefixWatch, job: str, mark: Mark, number: int) -> None:
    """The job is seen before and after each of some beats."""
    for epoch in range(number + 1):
        for _ in range(2):
            watch.saw(job, Sign(mark, 7, epoch))


def test_names_of_owners_are_read_and_others_are_not() -> None:
    assert job_of("p", owner_name("p", OWN)) == OWN
    # Prefixes that begin alike, and names of transactions.
    for name in (
        owner_name("p-owner", OWN),
        owner_name("pp", OWN),
        f"p-{'5' * 16}-0-3-{'6' * 16}-1",
        "p-owner-",
    ):
        assert job_of("p", name) is None


@pytest.mark.parametrize("job", [SMALL, GREAT])
def test_an_owner_that_beats_lives_whatever_its_id(job: str) -> None:
    watch = PrefixWatch(OWN, 0)
    beats(watch, job, Mark.OWNS, 1)
    assert watch.owner() is None, "one beat may be the last one of a job that ends"
    beats(watch, job, Mark.OWNS, 2)
    assert watch.owner() == job
    assert not watch.is_over(WATCH_SECONDS - 1)


def test_of_two_jobs_that_claim_the_smaller_id_wins() -> None:
    watch = PrefixWatch(OWN, 0)
    beats(watch, GREAT, Mark.CLAIMS, 9)
    assert watch.owner() is None
    beats(watch, SMALL, Mark.CLAIMS, 2)
    assert watch.owner() == SMALL


def test_a_new_producer_id_is_a_beat() -> None:
    watch = PrefixWatch(OWN, 0)
    for sign in (Sign(Mark.OWNS, 0, 32_766), Sign(Mark.OWNS, 1000, 0), Sign(Mark.OWNS, 1000, 1)):
        watch.saw(GREAT, sign)
    assert watch.owner() == GREAT


def test_a_job_that_says_that_it_has_ended_is_watched_no_more() -> None:
    watch = PrefixWatch(OWN, 0)
    assert watch.is_over(0)
    for gone in (Sign(Mark.RELEASED, 7, 9), Sign(Mark.WITHDRAWN, 7, 9), None):
        beats(watch, GREAT, Mark.OWNS, 1)
        assert not watch.is_over(0)
        watch.saw(GREAT, gone)
        assert watch.is_over(0) and watch.owner() is None and watch.dead() == {}


def test_jobs_without_beats_are_dead_and_marked_for_those_who_look_later() -> None:
    watch = PrefixWatch(OWN, 100)
    beats(watch, SMALL, Mark.OWNS, 0)
    beats(watch, GREAT, Mark.CLAIMS, 0)
    beats(watch, "f" * 32, Mark.OWNS, 1)
    assert not watch.is_over(100 + WATCH_SECONDS - 0.1)
    assert watch.is_over(100 + WATCH_SECONDS) and watch.owner() is None
    # One beat is too much for a dead job, and too little for a living one.
    assert watch.dead() == {SMALL: Mark.RELEASED, GREAT: Mark.WITHDRAWN}


def test_a_job_that_had_the_prefix_begins_again_without_a_look() -> None:
    assert [mark.had_prefix for mark in Mark] == [False, True, True, False]
    assert [mark.is_living for mark in Mark] == [True, True, False, False]


def test_a_name_with_another_time_out_is_no_sign() -> None:
    assert Sign.of(None) is None
    assert Sign.of(TransactionFacts("Empty", 7, 3, 60_000)) is None
    assert Sign.of(TransactionFacts("Empty", 7, 3, Mark.OWNS)) == Sign(Mark.OWNS, 7, 3)
