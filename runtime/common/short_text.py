"""ShortText: cuts text that is too long for a message in the middle; its beginning and end stay.

Owner: none (pure).
"""

from __future__ import annotations


def cut_in_the_middle(text: str, longest: int) -> str:
    """`text`, or its beginning and its end if it is longer than `longest` characters.

    A note between them gives the number of omitted characters.
    """
    if len(text) <= longest:
        return text
    tail = longest // 2
    left_out = len(text) - longest
    return f"{text[: longest - tail]}\n... {left_out} characters left out ...\n{text[-tail:]}"
