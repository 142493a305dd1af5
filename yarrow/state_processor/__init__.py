"""State as a table: reads, transforms and writes savepoints without a cluster. (Names of Flink's Java API.)"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from yarrow.runtime.common.public_names import loading

if TYPE_CHECKING:
    from yarrow.state_processor.errors import StateProcessorError
    from yarrow.state_processor.functions import (
        BroadcastStateBootstrapFunction,
        KeyedStateBootstrapFunction,
        KeyedStateReaderFunction,
        StateBootstrapFunction,
    )
    from yarrow.state_processor.operator_identifier import OperatorIdentifier
    from yarrow.state_processor.savepoint_environment import SavepointEnvironment
    from yarrow.state_processor.savepoint_reader import OperatorInfo, SavepointReader, StateInfo
    from yarrow.state_processor.savepoint_writer import SavepointWriter
    from yarrow.state_processor.transformations import OperatorTransformation, StateBootstrapTransformation

__all__ = [
    "BroadcastStateBootstrapFunction",
    "KeyedStateBootstrapFunction",
    "KeyedStateReaderFunction",
    "OperatorIdentifier",
    "OperatorInfo",
    "OperatorTransformation",
    "SavepointEnvironment",
    "SavepointReader",
    "SavepointWriter",
    "StateBootstrapFunction",
    "StateBootstrapTransformation",
    "StateInfo",
    "StateProcessorError",
]

#: The module of each name: what a program does not use, it does not load. So do tasks of Spark, which start often.
_MODULES: Final = {
    "StateProcessorError": "errors",
    "BroadcastStateBootstrapFunction": "functions",
    "KeyedStateBootstrapFunction": "functions",
    "KeyedStateReaderFunction": "functions",
    "StateBootstrapFunction": "functions",
    "OperatorIdentifier": "operator_identifier",
    "SavepointEnvironment": "savepoint_environment",
    "OperatorInfo": "savepoint_reader",
    "SavepointReader": "savepoint_reader",
    "StateInfo": "savepoint_reader",
    "SavepointWriter": "savepoint_writer",
    "OperatorTransformation": "transformations",
    "StateBootstrapTransformation": "transformations",
}

__getattr__ = loading(__name__, _MODULES)
