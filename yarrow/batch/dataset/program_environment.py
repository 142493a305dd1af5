"""ProgramEnvironment: the settings of a DataSet program, and the way to execute it.

Owner: the thread that builds the program; one environment is one program, whose jobs are executed one after the other.
It is a batch job like any other: settings, submission and cluster are those of a StreamExecutionEnvironment. Must not
know data sets.
"""

from __future__ import annotations

from typing import NoReturn, Self

import yarrow.runtime.config.options.execution as execution_options
import yarrow.runtime.config.options.rest as rest_options
from yarrow.batch.dataset.bounded_program import BoundedProgram
from yarrow.common.configuration import Configuration
from yarrow.common.execution_config import ExecutionConfig
from yarrow.common.job_client import JobClient
from yarrow.common.job_execution_result import JobExecutionResult
from yarrow.common.restart_strategy import RestartStrategyConfiguration
from yarrow.datastream.environment_settings import LOCAL_TARGET
from yarrow.datastream.program.job_waiting import wait_for_job
from yarrow.datastream.stream_execution_environment import REMOTE_TARGET
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.ids import IdFactory
from yarrow.runtime.config.validation import validate
from yarrow.runtime.config.values.errors import ConfigError


class ProgramEnvironment:
    """A program of data sets, its configuration, and the way to execute it."""

    def __init__(self, configuration: Configuration | None = None, ids: IdFactory | None = None) -> None:
        #: The program; data sets add their transformations to it.
        self.program = BoundedProgram(configuration, ids)
        self._last_result: JobExecutionResult | None = None

    # ------------------------------------------------------------------ making an environment

    @classmethod
    def get_execution_environment(cls, configuration: Configuration | None = None) -> Self:
        """Return an environment for where the program was started: embedded, or the command line's."""
        environment = cls(configuration)
        validate(environment.program._settings())
        return environment

    @classmethod
    def create_local_environment(cls, parallelism: int | None = None) -> Self:
        """Return an environment for an embedded cluster; parallelism is the number of cores unless given."""
        environment = cls(Configuration.from_dict({execution_options.TARGET.key: LOCAL_TARGET}))
        return environment if parallelism is None else environment.set_parallelism(parallelism)

    @classmethod
    def create_remote_environment(cls, host: str, port: int) -> Self:
        """Return an environment for the cluster whose REST address this is."""
        return cls(
            Configuration.from_dict(
                {
                    execution_options.TARGET.key: REMOTE_TARGET,
                    rest_options.ADDRESS.key: host,
                    rest_options.REST_PORT.key: str(port),
                }
            )
        )

    # ------------------------------------------------------------------ settings

    def get_config(self) -> ExecutionConfig:
        """Return the settings of the execution; changes to it change the environment."""
        return self.program.get_config()

    def get_configuration(self) -> Configuration:
        """Return the configuration itself; changes to it change the environment."""
        return self.program.get_configuration()

    def configure(self, configuration: Configuration) -> None:
        """Add these keys, in place of those set. Raises ConfigError for an unknown key or a wrong value."""
        self.program.configure(configuration)

    def get_parallelism(self) -> int:
        """Return the parallelism of operations that set none."""
        return self.program.get_parallelism()

    def set_parallelism(self, parallelism: int) -> Self:
        """Set the parallelism of operations that set none and are made from now on."""
        self.program.set_parallelism(parallelism)
        return self

    def set_restart_strategy(self, restart_strategy_configuration: RestartStrategyConfiguration) -> None:
        """Set how often the job starts again after a lost driver: see RestartStrategies."""
        self.program.set_restart_strategy(restart_strategy_configuration)

    def add_python_file(self, file_path: str) -> None:
        """Ship a module, a package folder or a zip of them; tasks import from it."""
        self.program.add_python_file(file_path)

    def register_cached_file(self, file_path: str, name: str, executable: bool = False) -> None:
        """Ship a file that functions find under a name."""
        self.program.register_cached_file(file_path, name, executable)

    # ------------------------------------------------------------------ execution

    def execute(self, job_name: str | None = None) -> JobExecutionResult:
        """Execute what the sinks defined since the last execution read, and wait for its end.

        Raises JobExecutionError, which begins with the user's own traceback if a function failed, and
        InvalidProgramError if there is no new sink.
        """
        try:
            return self.wait(self.program.submit(job_name))
        except (YarrowError, ConfigError, BrokenPipeError) as error:
            raise error.with_traceback(None) from None

    def execute_async(self, job_name: str | None = None) -> JobClient:
        """Execute the same, and return at once with a handle on the job."""
        return self.submit(job_name)

    def get_execution_plan(self) -> str:
        """Return the operators that the next job has as JSON, in Flink's shape. Nothing is executed."""
        return self.program.get_execution_plan()

    def get_last_job_execution_result(self) -> JobExecutionResult | None:
        """Return the result of the last job, also of collect, count or print; None before the first one."""
        return self._last_result

    def submit(self, job_name: str | None) -> JobClient:
        """Submits the next job."""
        try:
            return self.program.submit(job_name)
        except (YarrowError, ConfigError) as error:
            raise error.with_traceback(None) from None

    def wait(self, client: JobClient) -> JobExecutionResult:
        """The result of a job, which becomes the last one."""
        self._last_result = wait_for_job(client)
        return self._last_result

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} cannot be used inside a function: it exists on the client only"
        )
