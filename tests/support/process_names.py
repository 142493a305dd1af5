"""Names and commands of processes that may end at any time: one that has ended has neither.

Processes below Java, and commands that are about to end, end between two looks.
"""

from __future__ import annotations

import psutil


def name_of(process: psutil.Process) -> str:
    """The name; "" = the process has ended."""
    try:
        return str(process.name())
    except psutil.Error:
        return ""


def command_of(process: psutil.Process) -> str:
    """The arguments, joined by blanks; "" = the process has ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""
