"""The forms in which operators of windows store what windows keep: a restore refuses the form of another operator.

Owner: the task thread, while it sets up an operator. Each form has a state of its own name, since rows without a
declared type would be read in any form. Must not read or write state.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from typing import Final

from yarrow.container.operators.base import OperatorContext
from yarrow.container.operators.window.evicting_windows import CONTENTS_WITH_TIMES
from yarrow.container.operators.window.window_contents import CONTENTS
from yarrow.runtime.snapshot.errors import StateMigrationError

#: Name of the contents of tumbling windows that have fired and wait for the end of their lateness.
FIRED_CONTENTS: Final = "_window_contents/fired"
#: Name of the state with a counter and a value a key.
COUNTS: Final = "_count_windows"
#: Name of the state with a list of sessions a key.
SESSIONS: Final = "_sessions"
#: Names of what windows of slices keep: the slices, the merges of each key, and windows that have fired and wait for
#: the end of their lateness.
SLICES: Final = "_window_slices"
STACKS: Final = "_window_slices/stacks"
FIRED_SLICES: Final = "_window_slices/fired"

#: What lies in the state of each name.
_FORMS: Final[Mapping[str, str]] = {
    CONTENTS: "windows without an evictor, of which none is made of slices",
    FIRED_CONTENTS: "tumbling windows that have fired and wait for late records",
    CONTENTS_WITH_TIMES: "windows with an evictor",
    COUNTS: "count windows with one counter a key",
    SESSIONS: "sessions in one list a key",
    SLICES: "windows that are made of slices",
    STACKS: "windows that are made of slices",
    FIRED_SLICES: "windows that are made of slices",
}


def restored_names(context: OperatorContext) -> Set[str]:
    """Names of the keyed states with which the operator begins."""
    restored = context.environment.restored.of(context.descriptor.id).keyed
    return {state.name for handle in restored for state in handle.states}


#: What helps if a program's windows have changed.
_CHANGED_BACK: Final = (
    "Declare the windows as they were, or give them another uid, which begins them without state."
)
#: What helps if the general operator has begun windows which a fast one now runs.
_ANOTHER_WAY: Final = (
    "Either the program has changed, or it is the same, and an earlier version of Yarrow ran these windows key by key."
    " If it has changed, declare the windows as they were. If it is the same, set a trigger of a class of your own that"
    " extends the default one. These windows then run key by key, and go on. Or give them another uid, which begins"
    " them without state."
)


def other_windows(
    context: OperatorContext, state: str, was: str, now: str, remedy: str = _CHANGED_BACK
) -> StateMigrationError:
    """The error for restored windows that the program's windows cannot go on with."""
    return StateMigrationError(context.descriptor.name, state, "", was, now, remedy)


def require_form(own: str, context: OperatorContext, others: Collection[str] = ()) -> None:
    """Raises StateMigrationError for restored windows in another form than that of the state `own` and the `others`."""
    for other in sorted(restored_names(context) & (_FORMS.keys() - {own, *others})):
        is_general = other == CONTENTS and own in (COUNTS, SESSIONS)
        remedy = _ANOTHER_WAY if is_general else _CHANGED_BACK
        raise other_windows(context, other, _FORMS[other], _FORMS[own], remedy)
