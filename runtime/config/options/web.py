"""Options of the dashboard and of the data that REST shows.

Owner: any thread; declarations only. Nothing here reads a value; defaults are Flink's where the key is
Flink's, and the text says so where they are not.
"""

from __future__ import annotations

from typing import Final

from yarrow.common.values.value_types import BOOLEAN, COUNT, DURATION, STRING, duration
from yarrow.runtime.config.values.option import option, optional

SUBMIT_ENABLE: Final = option(
    "web.submit.enable",
    BOOLEAN,
    "true",
    "Whether programs can be uploaded and run through REST.",
    deprecated_keys=("jobmanager.web.submit.enable",),
)
CANCEL_ENABLE: Final = option(
    "web.cancel.enable",
    BOOLEAN,
    "true",
    "Whether the dashboard offers to cancel jobs.",
)
RESCALE_ENABLE: Final = option(
    "web.rescale.enable",
    BOOLEAN,
    "true",
    "Whether the dashboard offers to change the parallelism of running jobs.",
)
PAGES: Final = optional(
    "web.pages",
    STRING,
    "The archive whose pages the REST server shows at `/`, such as Flink's `flink-runtime-web`; `none` shows none.",
    unset="what `yarrow dashboard` keeps for this user, if it was run",
)
UPLOAD_DIR: Final = optional(
    "web.upload.dir",
    STRING,
    "Where uploaded programs are kept.",
    unset="a directory below `web.tmpdir`",
    deprecated_keys=("jobmanager.web.upload.dir",),
)
TMP_DIR: Final = optional(
    "web.tmpdir",
    STRING,
    "Where the REST server keeps temporary files.",
    unset="the system's directory for temporary files",
    deprecated_keys=("jobmanager.web.tmpdir",),
)
EXCEPTION_HISTORY_SIZE: Final = option(
    "web.exception-history-size",
    COUNT,
    "16",
    "Failures of a job that REST remembers.",
)
HISTORY: Final = option(
    "web.history",
    COUNT,
    "5",
    "Finished jobs that the dashboard lists.",
    deprecated_keys=("jobmanager.web.history",),
    no_effect="the dashboard lists the jobs that the master keeps (`jobstore.max-capacity`)",
)
CHECKPOINTS_HISTORY: Final = option(
    "web.checkpoints.history",
    COUNT,
    "10",
    "Past checkpoints of a job that REST remembers.",
    deprecated_keys=("jobmanager.web.checkpoints.history",),
)
REFRESH_INTERVAL: Final = option(
    "web.refresh-interval",
    DURATION,
    "3 s",
    "How often the dashboard asks anew.",
    deprecated_keys=("jobmanager.web.refresh-interval",),
)
TIMEOUT: Final = option(
    "web.timeout",
    DURATION,
    "10 min",
    "How long a REST request may take inside the cluster.",
)
ACCESS_CONTROL_ALLOW_ORIGIN: Final = optional(
    "web.access-control-allow-origin",
    STRING,
    "The origin whose pages may call REST besides its own; `*` lets those of any read. Flink's default is `*`.",
    unset="there is none",
    deprecated_keys=("jobmanager.web.access-control-allow-origin",),
)
LOG_PATH: Final = optional(
    "web.log.path",
    STRING,
    "The log file of the master process.",
    unset="a file below `env.log.dir`",
    deprecated_keys=("jobmanager.web.log.path",),
    no_effect="REST shows the log that the process writes below `env.log.dir`",
)
BACKPRESSURE_REFRESH_INTERVAL: Final = option(
    "web.backpressure.refresh-interval",
    duration("ms", "1 min"),
    "60000",
    "Age at which the back-pressure of a vertex is measured anew when it is asked for.",
    deprecated_keys=("jobmanager.web.backpressure.refresh-interval",),
    no_effect="back pressure is measured all the time",
)
BACKPRESSURE_CLEANUP_INTERVAL: Final = option(
    "web.backpressure.cleanup-interval",
    duration("ms", "10 min"),
    "600000",
    "Age at which a back-pressure measurement that nobody asks for is dropped.",
    deprecated_keys=("jobmanager.web.backpressure.cleanup-interval",),
    no_effect="back pressure is measured all the time",
)
