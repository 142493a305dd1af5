"""The executed module of a TaskExecutor process: executes the template first, then imports the rest beside it.

Owner: its main thread. Must not import at the top what takes more than a few milliseconds: the
first job waits for the template with the workers' modules. See child_task_executor for the process itself.
"""

from __future__ import annotations

import gc
import sys

from yarrow.container.launch.process_start import DEFAULT_ENTRY, execute_early_template, set_process_name


def main(worker_entry: str = DEFAULT_ENTRY) -> int:
    """Runs the process; its exit status is 0 when it was released, 1 when it failed."""
    set_process_name("yarrow-taskexec")
    template = execute_early_template(worker_entry)
    # Imports leave next to no garbage, and what they make stays: no collection looks at it, now or later.
    gc.disable()
    from yarrow.container.process.child_task_executor import run_child

    gc.freeze()
    gc.enable()
    return run_child(worker_entry, template)


if __name__ == "__main__":
    sys.exit(main())
