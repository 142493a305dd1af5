"""A child process of LocalProcessDriver for tests: reads its bootstrap, writes it down, and does as it is
told.

python child.py (wait | exit STATUS | ignore)
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from yarrow.runtime.rpc.bootstrap import read_bootstrap


def main() -> None:
    """`wait` ends with the pipe, `exit` at once, `ignore` never by itself."""
    bootstrap = read_bootstrap(sys.stdin.buffer)
    (Path(bootstrap.log_directory) / bootstrap.resource_id.replace(":", "_")).write_text(
        f"{bootstrap.resource_manager_address}\n{bootstrap.working_directory}\n{bootstrap.slots}\n"
    )
    match sys.argv[1]:
        case "exit":
            print("last words", file=sys.stderr)
            sys.exit(int(sys.argv[2]))
        case "ignore":
            while True:
                signal.pause()
        case "wait":
            sys.stdin.buffer.read()


if __name__ == "__main__":
    main()
