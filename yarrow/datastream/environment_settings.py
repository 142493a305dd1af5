"""EnvironmentSettings: the settings of a program, as methods of its environment.

Owner: the thread that builds the program. Each of them is a key of the configuration, checked when it is set;
nothing is built or executed here.
"""

from __future__ import annotations

import os
from typing import Self

import yarrow.runtime.config.options.checkpointing as checkpointing_options
import yarrow.runtime.config.options.execution as execution_options
import yarrow.runtime.config.options.pipeline as pipeline_options
import yarrow.runtime.config.options.python as python_options
from yarrow.common.configuration import Configuration
from yarrow.common.execution_config import ExecutionConfig
from yarrow.common.restart_strategy import RestartStrategyConfiguration
from yarrow.datastream.checkpoint_config import CheckpointConfig
from yarrow.datastream.checkpointing_mode import CheckpointingMode
from yarrow.datastream.execution_mode import RuntimeExecutionMode
from yarrow.datastream.fault_tolerance import set_backend
from yarrow.datastream.operator_settings import group_name
from yarrow.datastream.program.program_files import ProgramFiles
from yarrow.datastream.slot_sharing_group import SlotSharingGroup
from yarrow.datastream.state_backend import StateBackend
from yarrow.datastream.time_characteristic import TimeCharacteristic
from yarrow.runtime.config.restart_settings import restart_strategy_settings
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.config.validation import validate
from yarrow.runtime.graph.executor import base_configuration

LOCAL_TARGET = "local"

#: Keys of Flink that are kept without effect.
_CHANGELOG = "state.changelog.enabled"
_CLASSPATHS = "pipeline.classpaths"
_JARS = "pipeline.jars"


def _cores() -> int:
    return len(os.sched_getaffinity(0))


class EnvironmentSettings:
    """The settings of one program: those of a StreamExecutionEnvironment or of a Pipeline."""

    _default_local_parallelism: int | None = None

    def __init__(self, configuration: Configuration | None) -> None:
        values = {**base_configuration(), **({} if configuration is None else configuration.to_dict())}
        self._configuration = Configuration.from_dict(values)
        self._config = ExecutionConfig(self._configuration)
        self._checkpoint_config = CheckpointConfig(self._configuration)
        self._state_backend: StateBackend | None = None
        self._files = ProgramFiles()
        if not self._settings().is_set(pipeline_options.DEFAULT_PARALLELISM) and self._is_local():
            self.set_parallelism(self.get_default_local_parallelism())

    def get_config(self) -> ExecutionConfig:
        """Return the settings of the execution; changes to it change the environment."""
        return self._config

    def get_configuration(self) -> Configuration:
        """Return the configuration itself; changes to it change the environment."""
        return self._configuration

    def configure(self, configuration: Configuration) -> None:
        """Add these keys, in place of those set. Raises ConfigError for an unknown key or a wrong value."""
        validate(Settings(configuration.to_dict()))
        self._configuration.add_all(configuration)

    def get_parallelism(self) -> int:
        """Return the parallelism of operators that set none."""
        return self._config.get_parallelism()

    def set_parallelism(self, parallelism: int) -> Self:
        """Set the parallelism of operators that set none and are made from now on."""
        self._config.set_parallelism(parallelism)
        return self

    def get_max_parallelism(self) -> int:
        """Return the number of key groups, or -1 when it follows from the parallelism."""
        return self._config.get_max_parallelism()

    def set_max_parallelism(self, max_parallelism: int) -> Self:
        """Set the number of key groups of operators that set none: the most subtasks they can have."""
        self._config.set_max_parallelism(max_parallelism)
        return self

    @classmethod
    def get_default_local_parallelism(cls) -> int:
        """Return the parallelism of embedded clusters: the number of cores unless set."""
        return cls._default_local_parallelism or _cores()

    @classmethod
    def set_default_local_parallelism(cls, parallelism: int) -> None:
        """Set the parallelism of embedded clusters of environments made from now on."""
        if parallelism < 1:
            raise ValueError(f"parallelism must be at least 1, not {parallelism}")
        cls._default_local_parallelism = parallelism

    def get_buffer_timeout(self) -> int:
        """Return after how many ms a batch is sent that is not full; -1 is never."""
        settings = self._settings()
        if not settings.get(execution_options.BUFFER_TIMEOUT_ENABLED):
            return -1
        return settings.get(execution_options.BUFFER_TIMEOUT).millis

    def set_buffer_timeout(self, timeout_millis: int) -> Self:
        """Set after how many ms a batch is sent that is not full; -1 is never, 0 at once."""
        if timeout_millis < -1:
            raise ValueError(f"buffer timeout must be -1 or more milliseconds, not {timeout_millis}")
        enabled = timeout_millis >= 0
        self._configuration.set_string(execution_options.BUFFER_TIMEOUT_ENABLED.key, str(enabled).lower())
        if enabled:
            self._configuration.set_string(execution_options.BUFFER_TIMEOUT.key, f"{timeout_millis} ms")
        return self

    def disable_operator_chaining(self) -> Self:
        """Let every operator be a task of its own."""
        self._configuration.set_string(pipeline_options.OPERATOR_CHAINING.key, "false")
        return self

    def is_chaining_enabled(self) -> bool:
        """Return whether operators are chained where they can be."""
        return self._settings().get(pipeline_options.OPERATOR_CHAINING)

    def is_chaining_of_operators_with_different_max_parallelism_enabled(self) -> bool:
        """Return whether operators whose max parallelism differs may be chained."""
        return self._settings().get(pipeline_options.CHAIN_WITH_DIFFERENT_MAX_PARALLELISM)

    def register_slot_sharing_group(self, slot_sharing_group: SlotSharingGroup) -> Self:
        """Accept a group without resources of its own; others are refused in this version."""
        group_name(slot_sharing_group)
        return self

    def set_runtime_mode(self, execution_mode: RuntimeExecutionMode) -> Self:
        """Set whether the program runs as a stream, which is the default, or as a batch program on Spark."""
        self._configuration.set_string(execution_options.RUNTIME_MODE.key, execution_mode.name)
        return self

    def set_stream_time_characteristic(self, characteristic: TimeCharacteristic) -> Self:
        """Set which time the program goes by; EVENT_TIME is the default.

        INGESTION_TIME has sources stamp records with the time at which they read them, and make watermarks of it.
        PROCESSING_TIME asks no generator for watermarks; the others ask every 200 ms unless an interval was set.
        """
        if not isinstance(characteristic, TimeCharacteristic):
            raise TypeError(
                f"set_stream_time_characteristic takes a TimeCharacteristic, not {characteristic!r}"
            )
        self._configuration.set_string(pipeline_options.TIME_CHARACTERISTIC.key, characteristic.name)
        if characteristic is TimeCharacteristic.PROCESSING_TIME:
            self._config.set_auto_watermark_interval(0)
        elif self._config.get_auto_watermark_interval() == 0:
            self._config.set_auto_watermark_interval(200)
        return self

    def get_stream_time_characteristic(self) -> TimeCharacteristic:
        """Return which time the program goes by."""
        return self._settings().get(pipeline_options.TIME_CHARACTERISTIC)

    def set_restart_strategy(self, restart_strategy_configuration: RestartStrategyConfiguration) -> Self:
        """Set how often, and after which delay, the job starts again after a failure: see RestartStrategies.

        `fall_back_restart()` leaves it to the cluster.
        """
        for key, value in restart_strategy_settings(restart_strategy_configuration).items():
            self._configuration.set_string(key, value)
        return self

    def enable_checkpointing(self, interval: int, mode: CheckpointingMode | None = None) -> Self:
        """Store that a checkpoint is made every `interval` ms."""
        self._checkpoint_config.set_checkpoint_interval(interval)
        if mode is not None:
            self._checkpoint_config.set_checkpointing_mode(mode)
        return self

    def set_state_backend(self, state_backend: StateBackend) -> Self:
        """Set where keyed state lives. Raises TypeError or ValueError for a backend that workers could not make."""
        set_backend(self._configuration, state_backend)
        self._state_backend = state_backend
        return self

    def get_state_backend(self) -> StateBackend | None:
        """Return the backend given to `set_state_backend`; None: as configured."""
        return self._state_backend

    def enable_changelog_state_backend(self, enabled: bool) -> Self:
        """Keep the setting, which has no effect: state has no log of changes. `execute` tells so, once."""
        self._configuration.set_string(_CHANGELOG, str(enabled).lower())
        return self

    def is_changelog_state_backend_enabled(self) -> bool | None:
        """Return the value given for the changelog, which has no effect; None: none was given."""
        value = self._configuration.to_dict().get(_CHANGELOG)
        return None if value is None else str(value).lower() == "true"

    def set_default_savepoint_directory(self, directory: str) -> Self:
        """Set where savepoints go that are asked for without a directory."""
        self._configuration.set_string(checkpointing_options.SAVEPOINT_DIRECTORY.key, directory)
        return self

    def get_default_savepoint_directory(self) -> str | None:
        """Return the directory of savepoints for requests without a directory; None: each request must name one."""
        return self._settings().get(checkpointing_options.SAVEPOINT_DIRECTORY)

    def get_checkpoint_config(self) -> CheckpointConfig:
        """Return the settings of checkpoints; changes to it change the environment."""
        return self._checkpoint_config

    def get_checkpoint_interval(self) -> int:
        """Return the ms between checkpoints, or -1 when there are none."""
        return self._checkpoint_config.get_checkpoint_interval()

    def get_checkpointing_mode(self) -> CheckpointingMode:
        """Return the promise of a checkpoint about records after a failure."""
        return self._checkpoint_config.get_checkpointing_mode()

    def get_checkpointing_consistency_mode(self) -> CheckpointingMode:
        """Return the promise of a checkpoint about records after a failure."""
        return self._checkpoint_config.get_checkpointing_mode()

    def is_unaligned_checkpoints_enabled(self) -> bool:
        """Return whether barriers overtake records."""
        return self._checkpoint_config.is_unaligned_checkpoints_enabled()

    def is_force_unaligned_checkpoints(self) -> bool:
        """Return whether barriers overtake records even where a program would not have it."""
        return self._checkpoint_config.is_force_unaligned_checkpoints()

    # Files of the program

    def add_python_file(self, file_path: str) -> None:
        """Ship a module, a package folder or a zip of them; workers import from it."""
        self._files.add_python_file(file_path)

    def add_python_archive(self, archive_path: str, target_dir: str | None = None) -> None:
        """Ship an archive, unpacked in each worker's folder under `target_dir` or its own name."""
        self._files.add_archive(archive_path, target_dir)

    def set_python_requirements(
        self, requirements_file_path: str, requirements_cache_dir: str | None = None
    ) -> None:
        """Ship a requirements file, installed for the workers, with a folder of packages to install from."""
        self._files.set_requirements(requirements_file_path, requirements_cache_dir)

    def set_python_executable(self, python_exec: str) -> None:
        """Set the interpreter of the workers."""
        self._configuration.set_string(python_options.EXECUTABLE.key, python_exec)

    def add_jars(self, *jars_path: str) -> None:
        """Keep the jars' URLs, which have no effect: nothing of a job runs in Java. `execute` tells so, once."""
        self._add_urls(_JARS, jars_path)

    def add_classpaths(self, *classpaths: str) -> None:
        """Keep the URLs, which have no effect: nothing of a job runs in Java. `execute` tells so, once."""
        self._add_urls(_CLASSPATHS, classpaths)

    def register_cached_file(self, file_path: str, name: str, executable: bool = False) -> None:
        """Ship a file that functions find under a name."""
        self._files.add_cached_file(file_path, name, executable)

    def _add_urls(self, key: str, urls: tuple[str, ...]) -> None:
        known = self._configuration.to_dict().get(key)
        self._configuration.set_string(key, ";".join([*([str(known)] if known else []), *urls]))

    def _settings(self) -> Settings:
        return Settings(self._configuration.to_dict(), origin="the program")

    def _is_local(self) -> bool:
        return (self._settings().get(execution_options.TARGET) or LOCAL_TARGET) == LOCAL_TARGET
