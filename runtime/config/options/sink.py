"""Options of sinks: how commits are tried again.

Owner: any thread; declarations only. Nothing here reads a value; defaults are Flink's where the key is
Flink's, and the text says so where they are not.
"""

from __future__ import annotations

from typing import Final

from yarrow.common.values.quantities import Duration
from yarrow.common.values.value_types import COUNT, duration
from yarrow.runtime.config.values.option import option

COMMITTER_RETRIES: Final = option(
    "sink.committer.retries",
    COUNT,
    "10",
    "How often a commit that failed is tried again before the task fails.",
)
COMMITTER_RETRY_DELAY: Final = option(
    "sink.committer.retry-delay",
    duration("ms", "100 ms", Duration(1)),
    "100 ms",
    "Time before a failed commit is tried again; it doubles with each further try, up to 10 s. Each is shortened by "
    "chance, at most to the half. Yarrow's own option.",
)
