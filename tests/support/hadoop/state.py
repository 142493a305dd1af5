"""What runs in a cluster's folder, kept in one file: ports, jars, Java and the processes that were started.

Owner: whoever holds the folder's lock while it changes; readers need none, since the file is replaced
as a whole.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

from tests.support.hadoop.errors import HadoopError
from tests.support.hadoop.layout import Layout
from tests.support.services.processes import ProcessRecord
from yarrow.runtime.fs.whole_files import replace_whole


@dataclass
class ClusterState:
    """Everything that another process needs in order to use, look at or stop the cluster."""

    ports: dict[str, int]
    jars: str
    java_home: str
    processes: dict[str, ProcessRecord] = field(default_factory=dict)
    #: Whether it asks for Kerberos, and has a KDC of its own.
    kerberos: bool = False


def load(layout: Layout) -> ClusterState | None:
    """The state of a cluster; None where none was made. Raises HadoopError when the file is not ours."""
    try:
        stored = json.loads(layout.state.read_text(encoding="utf-8"))
        processes = {name: ProcessRecord(**record) for name, record in stored.pop("processes").items()}
        return ClusterState(processes=processes, **stored)
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise HadoopError(f"{layout.state} is not the state of a cluster ({error}): remove it") from error


def save(layout: Layout, state: ClusterState) -> None:
    """Replaces the stored state."""
    replace_whole(layout.state, json.dumps(asdict(state), indent=1).encode(), 0o644)
