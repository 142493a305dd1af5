"""The client's side of what user functions log in workers: which records it wants, and how they reach its handlers.

Owner: any thread; `logging` locks its handlers itself. The client's own loggers, levels, filters and handlers decide,
as if the function had run here.
"""

from __future__ import annotations

import logging
import sys
import traceback

from yarrow.runtime.rpc.output_stream import LoggedRecord

#: The level of a logger that wants nothing.
NOTHING = logging.CRITICAL + 1


def wanted_levels() -> dict[str, int]:
    """From which level a record of each logger would be written by some handler here; "" = of the root logger.

    A logger that is not named wants what the next one above it wants.
    """
    levels = {"": _wanted(logging.root)}
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if isinstance(logger, logging.Logger):
            wanted = _wanted(logger)
            # Functions that set the level of a logger above it in their worker are to be heeded.
            if logger.parent is None or wanted != _wanted(logger.parent):
                levels[name] = wanted
    return levels


def handlers_of(logger: logging.Logger) -> list[logging.Handler]:
    """The handlers that get a logger's records: its own first, then those of the loggers above it."""
    handlers: list[logging.Handler] = []
    above: logging.Logger | None = logger
    while above is not None:
        handlers += above.handlers
        above = above.parent if above.propagate else None
    return handlers


def _wanted(logger: logging.Logger) -> int:
    if logger.disabled:
        return NOTHING
    handlers = handlers_of(logger)
    if not handlers and logging.lastResort is not None:
        handlers = [logging.lastResort]
    lowest = min((handler.level for handler in handlers), default=NOTHING)
    return max(lowest, logger.getEffectiveLevel(), logger.manager.disable + 1)


def log_to_client(logged: LoggedRecord) -> None:
    """Gives a record to the logger of its name; attributes `operator` and `subtask` tell where it was logged."""
    logger = logging.getLogger(logged.name)
    if not logger.isEnabledFor(logged.level):
        return
    record = logger.makeRecord(
        logged.name,
        logged.level,
        logged.path,
        logged.line,
        logged.message,
        (),
        None,
        logged.function,
        {"operator": logged.operator, "subtask": logged.subtask},
    )
    record.created = logged.created
    record.msecs = (logged.created - int(logged.created)) * 1000
    record.threadName = logged.thread
    # Formatters write this text behind the message, as they do with a traceback of their own making.
    record.exc_text = logged.traceback or None
    try:
        logger.handle(record)
    except Exception:
        # A filter of the program failed: in the worker it would have hit the function, here it must not end the reader.
        if logging.raiseExceptions and sys.stderr is not None:
            traceback.print_exc()
