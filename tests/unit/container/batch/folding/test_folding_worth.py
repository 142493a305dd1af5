"""When folding rows before the shuffle pays."""

from __future__ import annotations

from math import exp

from yarrow.container.batch.folding.folding_worth import FoldingWorth


def test_half_of_the_rows_is_worth_it() -> None:
    worth = FoldingWorth()
    assert not worth.gives_up(left=500, folded=1000)
    assert worth.gives_up(left=501, folded=1000)


def warned() -> FoldingWorth:
    """A full table has not paid."""
    worth = FoldingWorth()
    worth.rest(0, most_keys=1000)
    return worth


def test_first_table_is_filled_whole() -> None:
    """Keys that come in turn do not repeat before all of them have come."""
    assert not FoldingWorth().gives_up_early(keys=999, folded=999, most_keys=1000)


def test_keys_that_do_not_repeat_again_show_early() -> None:
    worth = warned()
    assert not worth.gives_up_early(keys=249, folded=249, most_keys=1000)
    assert worth.gives_up_early(keys=250, folded=250, most_keys=1000)


def test_evenly_spread_keys_are_judged_early_as_they_would_be_late() -> None:
    """A full table of 1000 keys leaves half of its rows if there are 1250 keys."""
    worth = warned()

    def keys_among(distinct: int, rows: int) -> int:
        return int(distinct * (1 - exp(-rows / distinct)))

    for distinct, pays in ((1000, True), (1250, True), (3000, False), (100_000, False)):
        rows = next(rows for rows in range(250, 1000) if keys_among(distinct, rows) >= 250)
        assert worth.gives_up_early(keys_among(distinct, rows), rows, most_keys=1000) is not pays


def test_folding_is_tried_again() -> None:
    worth = FoldingWorth()
    assert not worth.rests(0)
    worth.rest(100, most_keys=10)
    assert worth.rests(100)
    assert worth.rests(259)
    assert not worth.rests(260)
