"""What a consumer sees against what went in: each guarantee refuses what it must, and nothing else."""

from __future__ import annotations

from collections import Counter

import pytest

from yarrow.datastream.connectors.base import DeliveryGuarantee
from yarrow.testing.connectors.output_check import what_is_wrong

EXPECTED = Counter("aab")
EXACTLY, AT_LEAST, NONE = (
    DeliveryGuarantee.EXACTLY_ONCE,
    DeliveryGuarantee.AT_LEAST_ONCE,
    DeliveryGuarantee.NONE,
)


@pytest.mark.parametrize("guarantee", DeliveryGuarantee)
def test_the_same_rows_keep_every_guarantee(guarantee: DeliveryGuarantee) -> None:
    assert what_is_wrong(guarantee, EXPECTED, Counter("aba")) == ""


@pytest.mark.parametrize(
    ("found", "broken"),
    [
        ("ab", {EXACTLY, AT_LEAST}),
        ("aabb", {EXACTLY}),
        ("aabc", {EXACTLY, AT_LEAST, NONE}),
        ("", {EXACTLY, AT_LEAST}),
    ],
)
def test_a_guarantee_is_broken(found: str, broken: set[DeliveryGuarantee]) -> None:
    assert {one for one in DeliveryGuarantee if what_is_wrong(one, EXPECTED, Counter(found))} == broken


@pytest.mark.parametrize("guarantee", DeliveryGuarantee)
def test_nothing_may_be_left_over(guarantee: DeliveryGuarantee) -> None:
    said = what_is_wrong(guarantee, EXPECTED, EXPECTED, ["open-1"])
    assert said == "1 things are left over: open-1"


def test_the_message_names_rows() -> None:
    said = what_is_wrong(EXACTLY, EXPECTED, Counter("abbc"))
    assert said == ("1 of 3 rows are missing: 'a'; 1 rows were never put in: 'c'; 1 rows came too often: 'b'")
