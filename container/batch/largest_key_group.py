"""LargestKeyGroup: what a task tells of the key group that has most of its records.

Owner: none (frozen values). Apart from what finds it, so that processes without arrays can read it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

#: Key groups with fewer records are of no interest: their key is not looked for.
LARGE_RECORDS: Final = 100_000


class LargestKeyGroup(msgspec.Struct, frozen=True, kw_only=True):
    """The key group of a task that has the most records."""

    key_group: int
    records: int
    #: The key that most of its records have, as text; "" = no key has most of them, or they are few.
    key: str = ""
    #: Records and number of all key groups of the task that have records.
    task_records: int
    task_key_groups: int


#: Gets the largest key group of a task when the task begins with it.
OnLargest = Callable[[LargestKeyGroup], None]
