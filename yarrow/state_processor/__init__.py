"""State as a table: reads, transforms and writes savepoints without a cluster. (Names of Flink's Java API.)"""

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
