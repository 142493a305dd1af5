"""Complex event processing: patterns of records, looked for in streams and lists. See docs/cep.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from yarrow.runtime.common.public_names import loading

if TYPE_CHECKING:
    from yarrow.cep.after_match_skip_strategy import AfterMatchSkipStrategy
    from yarrow.cep.conditions import (
        IterativeCondition,
        RichIterativeCondition,
        SimpleCondition,
    )
    from yarrow.cep.matching import Matches, match
    from yarrow.cep.pattern import MalformedPatternError, Pattern, WithinType
    from yarrow.cep.pattern_functions import (
        PatternFlatSelectFunction,
        PatternFlatTimeoutFunction,
        PatternProcessFunction,
        PatternSelectFunction,
        PatternTimeoutFunction,
        TimedOutPartialMatchHandler,
    )
    from yarrow.cep.pattern_matcher import PatternResult
    from yarrow.cep.pattern_stream import CEP, PatternStream

__all__ = [
    "CEP",
    "AfterMatchSkipStrategy",
    "IterativeCondition",
    "MalformedPatternError",
    "Matches",
    "Pattern",
    "PatternFlatSelectFunction",
    "PatternFlatTimeoutFunction",
    "PatternProcessFunction",
    "PatternResult",
    "PatternSelectFunction",
    "PatternStream",
    "PatternTimeoutFunction",
    "RichIterativeCondition",
    "SimpleCondition",
    "TimedOutPartialMatchHandler",
    "WithinType",
    "match",
]

#: The module of each name: what a program does not use, it does not load.
_MODULES: Final = {
    "CEP": "pattern_stream",
    "PatternStream": "pattern_stream",
    "AfterMatchSkipStrategy": "after_match_skip_strategy",
    "IterativeCondition": "conditions",
    "RichIterativeCondition": "conditions",
    "SimpleCondition": "conditions",
    "MalformedPatternError": "pattern",
    "Pattern": "pattern",
    "WithinType": "pattern",
    "PatternFlatSelectFunction": "pattern_functions",
    "PatternFlatTimeoutFunction": "pattern_functions",
    "PatternProcessFunction": "pattern_functions",
    "PatternSelectFunction": "pattern_functions",
    "PatternTimeoutFunction": "pattern_functions",
    "TimedOutPartialMatchHandler": "pattern_functions",
    "PatternResult": "pattern_matcher",
    "Matches": "matching",
    "match": "matching",
}

__getattr__ = loading(__name__, _MODULES)
