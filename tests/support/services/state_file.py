"""The file in a service's folder that says what runs there: a dataclass with `processes`, as JSON.

Owner: whoever holds the folder's lock while it changes; readers need none, since the file is replaced as a whole.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from tests.support.services.errors import ServiceError
from tests.support.services.processes import ProcessRecord
from yarrow.runtime.fs.whole_files import replace_whole

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

S = TypeVar("S")


def load(file: Path, make: Callable[..., S], error_type: type[ServiceError] = ServiceError) -> S | None:
    """The state in a file, made by the class of its dataclass; None where there is none.

    Raises `error_type` when the file is not ours.
    """
    try:
        stored = json.loads(file.read_text(encoding="utf-8"))
        processes = {name: ProcessRecord(**record) for name, record in stored.pop("processes").items()}
        return make(processes=processes, **stored)
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise error_type(f"{file} is not the state of a cluster ({error}): remove it") from error


def save(file: Path, state: DataclassInstance) -> None:
    """Replaces the stored state."""
    replace_whole(file, json.dumps(asdict(state), indent=1).encode(), 0o644)
