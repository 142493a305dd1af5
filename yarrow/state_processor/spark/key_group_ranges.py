"""Divides the key groups of a state among partitions of about the same size, along the files as far as that goes.

Owner: the calling thread; pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

#: A range is divided where it is so much larger than a partition should be, and joined up to that.
_SLACK: Final = 1.25


class SizedRange(NamedTuple):
    """Key groups `start` to `end`, both included, and about how many bytes of state they have."""

    start: int
    end: int
    size: float


def divided(pieces: Iterable[SizedRange], wanted: int) -> list[SizedRange]:
    """About `wanted` ranges that together have all key groups of the pieces, without overlaps, in order.

    `pieces` are files, which may overlap. Where a range has one file to itself, its task alone reads the file.
    """
    atoms = _atoms(list(pieces))
    share = sum(atom.size for atom in atoms) / max(1, wanted)
    found: list[SizedRange] = []
    for atom in atoms:
        last = found[-1] if found else None
        if last is not None and last.end + 1 == atom.start and _join(last.size, atom.size, share):
            found[-1] = SizedRange(last.start, atom.end, last.size + atom.size)
        else:
            found += _cut(atom, share)
    return found


def _join(size: float, more: float, share: float) -> bool:
    """Whether a range comes nearer to its share with more."""
    return size + more <= share * _SLACK and size + more / 2 <= share


def _atoms(pieces: Sequence[SizedRange]) -> list[SizedRange]:
    """Ranges between the borders of pieces."""
    borders = sorted({piece.start for piece in pieces} | {piece.end + 1 for piece in pieces})
    atoms: list[SizedRange] = []
    for start, behind in pairwise(borders):
        within = [piece for piece in pieces if piece.start <= start and behind <= piece.end + 1]
        if within:
            size = sum(piece.size * (behind - start) / (piece.end + 1 - piece.start) for piece in within)
            atoms.append(SizedRange(start, behind - 1, size))
    return atoms


def _cut(atom: SizedRange, share: float) -> list[SizedRange]:
    """A range in as many equal parts as it has shares."""
    groups = atom.end + 1 - atom.start
    parts = min(groups, max(1, round(atom.size / share))) if share > 0 and atom.size > share * _SLACK else 1
    borders = [atom.start + groups * number // parts for number in range(parts + 1)]
    return [SizedRange(start, behind - 1, atom.size / parts) for start, behind in pairwise(borders)]
