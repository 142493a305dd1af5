"""Holds what a consumer sees against what went in, by the guarantee that is claimed. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from yarrow.datastream.connectors.base import DeliveryGuarantee

#: Rows that a message shows.
_SHOWN = 5


def what_is_wrong(
    guarantee: DeliveryGuarantee, expected: Counter[str], found: Counter[str], leftovers: Iterable[str] = ()
) -> str:
    """What breaks the guarantee, in words; "" where nothing does.

    EXACTLY_ONCE: the same rows as often. AT_LEAST_ONCE: all rows at least as often. NONE: no row that was never there.
    Nothing may be left over with any of them.
    """
    wrong: list[str] = []
    if guarantee is not DeliveryGuarantee.NONE and (missing := expected - found):
        wrong.append(f"{missing.total()} of {expected.total()} rows are missing: {_shown(missing)}")
    invented = Counter({row: number for row, number in found.items() if row not in expected})
    if invented:
        wrong.append(f"{invented.total()} rows were never put in: {_shown(invented)}")
    if guarantee is DeliveryGuarantee.EXACTLY_ONCE and (doubled := found - expected - invented):
        wrong.append(f"{doubled.total()} rows came too often: {_shown(doubled)}")
    if left := list(leftovers):
        wrong.append(f"{len(left)} things are left over: {', '.join(left[:_SHOWN])}")
    return "; ".join(wrong)


def _shown(rows: Counter[str]) -> str:
    first = [
        f"{row!r}" + (f" ({number} times)" if number > 1 else "") for row, number in rows.most_common(_SHOWN)
    ]
    return ", ".join(first) + (", ..." if len(rows) > _SHOWN else "")
