"""ExecutionConfig: how a program is executed, as methods over a Configuration.

A view owned by the thread that builds the job: it reads and writes the Configuration, so that there is one
truth. Times are in milliseconds. Options of Java classes alone (Kryo, Avro, closure cleaner) are kept and
read back, and have no effect. The program is told why when it is executed.
"""

from __future__ import annotations

from typing import TypeVar

from yarrow.common import pipeline_options as options
from yarrow.common.config_options import ConfigOption
from yarrow.common.configuration import Configuration
from yarrow.common.time import Duration

__all__ = ["ExecutionConfig"]

T = TypeVar("T")

#: The largest number of key groups; part of the stored formats.
_LARGEST_MAX_PARALLELISM = 32_768


class ExecutionConfig:
    """Settings of a program's execution. Setters return the object for chaining."""

    #: Stands for a parallelism that is not set.
    PARALLELISM_DEFAULT = -1
    #: Stands for a parallelism that stays as it is.
    PARALLELISM_UNKNOWN = -2

    def __init__(self, configuration: Configuration | None = None) -> None:
        self._configuration = Configuration() if configuration is None else configuration

    def get_parallelism(self) -> int:
        """Return the parallelism of operators that set none."""
        return self._value(options.PARALLELISM)

    def set_parallelism(self, parallelism: int) -> ExecutionConfig:
        """Set the parallelism of operators that set none; PARALLELISM_DEFAULT takes the setting back.

        PARALLELISM_UNKNOWN leaves it as it is. Raises ValueError for any other number below 1.
        """
        if parallelism == self.PARALLELISM_UNKNOWN:
            return self
        if parallelism == self.PARALLELISM_DEFAULT:
            self._configuration.remove_config(options.PARALLELISM.key())
            return self
        if isinstance(parallelism, bool) or not isinstance(parallelism, int) or parallelism < 1:
            raise ValueError(f"parallelism must be a whole number of at least 1, not {parallelism!r}")
        self._configuration.set(options.PARALLELISM, parallelism)
        return self

    def get_max_parallelism(self) -> int:
        """Return the number of key groups, or -1 when it follows from the parallelism."""
        return self._value(options.MAX_PARALLELISM)

    def set_max_parallelism(self, max_parallelism: int) -> ExecutionConfig:
        """Set the number of key groups. Raises ValueError outside 1 to 32768."""
        if not isinstance(max_parallelism, int) or not 1 <= max_parallelism <= _LARGEST_MAX_PARALLELISM:
            raise ValueError(
                f"max parallelism must be 1 to {_LARGEST_MAX_PARALLELISM}, not {max_parallelism!r}"
            )
        self._configuration.set(options.MAX_PARALLELISM, max_parallelism)
        return self

    def get_auto_watermark_interval(self) -> int:
        """Return how often watermark generators are asked for a watermark, in ms; 0 is never."""
        return self._millis(options.AUTO_WATERMARK_INTERVAL)

    def set_auto_watermark_interval(self, interval: int) -> ExecutionConfig:
        """Set how often watermark generators are asked for a watermark, in ms; 0 is never."""
        return self._set_millis(options.AUTO_WATERMARK_INTERVAL, interval)

    def get_latency_tracking_interval(self) -> int:
        """Return how often sources send latency markers, in ms; 0 is never."""
        return self._millis(options.LATENCY_INTERVAL)

    def set_latency_tracking_interval(self, interval: int) -> ExecutionConfig:
        """Set how often sources send latency markers, in ms; 0 is never."""
        return self._set_millis(options.LATENCY_INTERVAL, interval)

    def get_task_cancellation_interval(self) -> int:
        """Return the time between two attempts to cancel a task, in ms."""
        return self._millis(options.TASK_CANCELLATION_INTERVAL)

    def set_task_cancellation_interval(self, interval: int) -> ExecutionConfig:
        """Set the time between two attempts to cancel a task, in ms."""
        return self._set_millis(options.TASK_CANCELLATION_INTERVAL, interval)

    def get_task_cancellation_timeout(self) -> int:
        """Return the time after which a worker whose task does not end is killed, in ms; 0 is never."""
        return self._millis(options.TASK_CANCELLATION_TIMEOUT)

    def set_task_cancellation_timeout(self, timeout: int) -> ExecutionConfig:
        """Set the time after which a worker whose task does not end is killed, in ms; 0 is never."""
        return self._set_millis(options.TASK_CANCELLATION_TIMEOUT, timeout)

    def enable_generic_types(self) -> ExecutionConfig:
        """Pickle values of undeclared type, as is the default."""
        return self._set_flag(options.GENERIC_TYPES, True)

    def disable_generic_types(self) -> ExecutionConfig:
        """Refuse streams whose values have no declared type."""
        return self._set_flag(options.GENERIC_TYPES, False)

    def has_generic_types_disabled(self) -> bool:
        """Whether streams whose values have no declared type are refused."""
        return not self._value(options.GENERIC_TYPES)

    def enable_auto_generated_uids(self) -> ExecutionConfig:
        """Give operators without a uid one from their place in the graph, as is the default."""
        return self._set_flag(options.AUTO_GENERATE_UIDS, True)

    def disable_auto_generated_uids(self) -> ExecutionConfig:
        """Refuse programs with an operator that has no uid."""
        return self._set_flag(options.AUTO_GENERATE_UIDS, False)

    def has_auto_generated_uids_enabled(self) -> bool:
        """Whether operators without a uid get one."""
        return self._value(options.AUTO_GENERATE_UIDS)

    def enable_object_reuse(self) -> ExecutionConfig:
        """Pass mutable values by reference: functions must then not change values that they took or emitted."""
        return self._set_flag(options.OBJECT_REUSE, True)

    def disable_object_reuse(self) -> ExecutionConfig:
        """Copy mutable values where two could see them, as is the default."""
        return self._set_flag(options.OBJECT_REUSE, False)

    def is_object_reuse_enabled(self) -> bool:
        """Whether mutable values pass by reference."""
        return self._value(options.OBJECT_REUSE)

    def enable_closure_cleaner(self) -> ExecutionConfig:
        """Kept without effect: it cleans closures of Java."""
        self._configuration.set(options.CLOSURE_CLEANER_LEVEL, "RECURSIVE")
        return self

    def disable_closure_cleaner(self) -> ExecutionConfig:
        """Kept without effect: it cleans closures of Java."""
        self._configuration.set(options.CLOSURE_CLEANER_LEVEL, "NONE")
        return self

    def is_closure_cleaner_enabled(self) -> bool:
        """Whether the closure cleaner, which has no effect, was left on."""
        return self._value(options.CLOSURE_CLEANER_LEVEL).upper() != "NONE"

    def enable_force_kryo(self) -> ExecutionConfig:
        """Kept without effect: Kryo serializes Java's objects."""
        return self._set_flag(options.FORCE_KRYO, True)

    def disable_force_kryo(self) -> ExecutionConfig:
        """Kept without effect: Kryo serializes Java's objects."""
        return self._set_flag(options.FORCE_KRYO, False)

    def is_force_kryo_enabled(self) -> bool:
        """Whether Kryo, which has no effect, was asked for."""
        return self._value(options.FORCE_KRYO)

    def enable_force_avro(self) -> ExecutionConfig:
        """Kept without effect: it chooses a serializer of Java's objects."""
        return self._set_flag(options.FORCE_AVRO, True)

    def disable_force_avro(self) -> ExecutionConfig:
        """Kept without effect: it chooses a serializer of Java's objects."""
        return self._set_flag(options.FORCE_AVRO, False)

    def is_force_avro_enabled(self) -> bool:
        """Whether Avro, which has no effect, was asked for."""
        return self._value(options.FORCE_AVRO)

    def get_default_kryo_serializer_classes(self) -> dict[str, str]:
        """Return none: there are no serializers of Java's objects."""
        return {}

    def get_registered_kryo_types(self) -> list[str]:
        """Return none: there are no serializers of Java's objects."""
        return []

    def get_registered_pojo_types(self) -> list[str]:
        """Return none: there are no serializers of Java's objects."""
        return []

    def set_use_snapshot_compression(self, use_snapshot_compression: bool) -> ExecutionConfig:
        """Set whether the state in snapshots is compressed."""
        return self._set_flag(options.SNAPSHOT_COMPRESSION, use_snapshot_compression)

    def is_use_snapshot_compression(self) -> bool:
        """Whether the state in snapshots is compressed."""
        return self._value(options.SNAPSHOT_COMPRESSION)

    def get_global_job_parameters(self) -> dict[str, str]:
        """Return the parameters that every function can read."""
        parameters = self._configuration.get(options.GLOBAL_JOB_PARAMETERS)
        return {} if parameters is None else dict(parameters)

    def set_global_job_parameters(self, global_job_parameters_dict: dict[str, str]) -> ExecutionConfig:
        """Set the parameters that every function can read by RuntimeContext.get_job_parameter."""
        # Kept as a dict, not as text: values may contain the separators of the text form.
        parameters = {str(key): str(value) for key, value in global_job_parameters_dict.items()}
        self._configuration.add_all(
            Configuration.from_dict({options.GLOBAL_JOB_PARAMETERS.key(): parameters})
        )
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExecutionConfig) and self._configuration == other._configuration

    def __hash__(self) -> int:
        """The hash of the present settings: it changes with them, as in Flink."""
        return hash(self._configuration)

    def __str__(self) -> str:
        return f"ExecutionConfig{{configuration={self._configuration}}}"

    def __repr__(self) -> str:
        return str(self)

    def _value(self, option: ConfigOption[T]) -> T:
        value = self._configuration.get(option)
        assert value is not None, f"{option} is read here as if it had a default"
        return value

    def _millis(self, option: ConfigOption[Duration]) -> int:
        return self._value(option).to_millis()

    def _set_millis(self, option: ConfigOption[Duration], millis: int) -> ExecutionConfig:
        if millis < 0:
            raise ValueError(f"{option.key()} must not be negative: {millis} ms")
        self._configuration.set(option, Duration.of_millis(millis))
        return self

    def _set_flag(self, option: ConfigOption[bool], value: bool) -> ExecutionConfig:
        self._configuration.set(option, value)
        return self
