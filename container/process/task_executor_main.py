"""The executed module of a TaskExecutor process: forks the template first, then imports the rest beside it.

Owner: its main thread. Must not import at the top what its template does without: the template is a fork of it.
See child_task_executor for the process itself.
"""

from __future__ import annotations

import gc
import sys

from yarrow.container.launch.forked_template import fork_template
from yarrow.container.launch.process_start import DEFAULT_ENTRY, set_process_name


def main(worker_entry: str = DEFAULT_ENTRY) -> int:
    """Runs the process; its exit status is 0 when it was released, 1 when it failed."""
    set_process_name("yarrow-taskexec")
    # Imports leave next to no garbage, and what they make stays: no collection looks at it, now or later.
    gc.disable()
    template = fork_template(worker_entry)
    from yarrow.container.process.child_task_executor import run_child

    gc.freeze()
    gc.enable()
    return run_child(worker_entry, template)


if __name__ == "__main__":
    sys.exit(main())
