"""The process from which Spark forks its Python workers: the engine is imported once, before the first fork.

Owner: its only thread. Spark starts it as `python -m` this module and closes its standard input at the end.
The kernel ends the workers with it, even inside a call that holds the interpreter for ever.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable

from yarrow.container.batch.spark.tasks.unpacked_pyspark import prefer_unpacked
from yarrow.container.launch.process_start import set_process_name
from yarrow.container.launch.worker_process import die_with_parent, reseed

#: This process is a worker.
_is_worker = False


def _in_worker(parent: int) -> None:
    """Prepares a worker; `parent` is the process that forks workers."""
    global _is_worker
    if _is_worker:
        # A function of the program has forked: that process is its own affair.
        return
    _is_worker = True
    die_with_parent(parent)
    set_process_name("yarrow-batch")
    reseed()


def _imported() -> Callable[[], None]:
    """Imports what each worker needs: forking shares its memory. Returns what serves Spark."""
    import pyarrow.compute  # noqa: F401
    from pyspark import daemon, worker  # noqa: F401

    from yarrow.container.batch import batch_task, chunk  # noqa: F401
    from yarrow.container.batch.spark.tasks import stage_function  # noqa: F401

    serve: Callable[[], None] = daemon.manager
    return serve


def main() -> None:
    """Serves until Spark closes standard input."""
    parent = os.getpid()
    set_process_name("yarrow-batchd")
    prefer_unpacked()
    serve = _imported()
    # Spark's workers collect garbage behind each task. What was imported stays: no collection looks at it again.
    gc.collect()
    gc.freeze()
    os.register_at_fork(after_in_child=lambda: _in_worker(parent))
    serve()


if __name__ == "__main__":
    main()
