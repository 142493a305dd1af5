"""Numbers that programs compare times and watermarks with, and the tag of main outputs.

Constants alone, usable from any thread.
"""

from __future__ import annotations

__all__ = ["DEFAULT_OUTPUT_TAG", "MAX_LONG_VALUE", "MIN_LONG_VALUE"]

#: The largest integer of 64 bits: the last watermark, and the end of a GlobalWindow.
MAX_LONG_VALUE = (1 << 63) - 1
#: The least integer of 64 bits: the watermark before the first one.
MIN_LONG_VALUE = -(1 << 63)
#: The name of an operator's main output among its side outputs.
DEFAULT_OUTPUT_TAG = ""
