"""ClientLogging: the client's side of log records from workers: which ones it wants, and how its handlers get them.

Owner: any thread; `logging` locks its handlers itself. The client's own loggers, levels, filters and handlers decide,
as if the function had run here.
"""

from __future__ import annotations

import logging
import sys
import traceback

from yarrow.runtime.rpc.output_stream import LoggedRecord

#: The level of a logger that wants no record.
NOTHING = logging.CRITICAL + 1


def wanted_levels() -> dict[str, int]:
    """The lowest level of each logger's records that some handler here would write; "" = the root logger.

    A logger that is not named has the level of the next one above it.
    """
    levels = {"": _wanted(logging.root)}
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if isinstance(logger, logging.Logger):
            wanted = _wanted(logger)
            # A function in a worker may set the level of a logger above this one, which must take effect.
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
    """Passes a record to the logger of its name; its attributes `operator` and `subtask` name the origin."""
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
    # Formatters write this text after the message, like a traceback of their own.
    record.exc_text = logged.traceback or None
    try:
        logger.handle(record)
    except Exception:
        # A filter of the program failed. In the worker the function would have failed; here the reader must
        # not end.
        if logging.raiseExceptions and sys.stderr is not None:
            traceback.print_exc()
