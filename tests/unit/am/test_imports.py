"""What importing the control plane costs."""

from __future__ import annotations

import subprocess
import sys

HEAVY = {"grpc", "cryptography", "fastapi", "pydantic", "uvicorn", "pyarrow", "numpy", "pandas", "polars"}


def test_the_control_plane_imports_nothing_heavy() -> None:
    """gRPC, certificates and data libraries are loaded when they are first needed."""
    program = (
        "import sys, yarrow.am.control_plane, yarrow.runtime.rpc.grpc_transport,"
        " yarrow.am.resourcemanager.local_process_driver; print(*sys.modules)"
    )
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not HEAVY & set(finished.stdout.split())
