"""Which patterns of columns are plain sequences, whose partial matches move as arrays; and why others are not.

Owner: none; pure. The plan tells the reason, and the operator takes the same decision. See
docs/design/0058-sequences-of-columns.md.
"""

from __future__ import annotations

from yarrow.cep.conditions import ColumnCondition
from yarrow.cep.pattern import Contiguity, Pattern, Step


def why_no_plain_sequence(pattern: Pattern, max_partial_matches: int | None) -> str:
    """What of a pattern asks for the table of states; empty for a plain sequence.

    In a plain sequence each step takes one row that fulfils conditions over columns. Any rows may come between.
    """
    if max_partial_matches is not None:
        return "max_partial_matches"
    strategy = pattern.after_match_skip_strategy
    if strategy.is_skip_strategy:
        return f"its skip strategy {strategy.kind.value}"
    for at, step in enumerate(pattern.steps):
        if reason := _why_not_plain(step, is_first=at == 0):
            return reason
    return ""


def _why_not_plain(step: Step, *, is_first: bool) -> str:
    if step.group is not None:
        return "a group"
    if not is_first and step.contiguity is not Contiguity.RELAXED:
        return f"{step.contiguity.value}({step})"
    if step.repetition is not None:
        return f"the step {step}, which takes several rows"
    if step.is_optional:
        return f"the step {step}, which may be left out"
    if step.within_previous_ms is not None:
        return f"the time limit of the step {step}"
    if not all(isinstance(part.condition, ColumnCondition) for part in step.conditions):
        return f"the condition of the step {step}, which is not over columns"
    return ""
