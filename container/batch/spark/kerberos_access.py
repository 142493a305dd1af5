"""Login of a driver's Java where Hadoop asks for Kerberos, by its container's tokens, a keytab, or the ticket cache.

Owner: the driver's start. Tokens and keys are in no text, argument or setting: Java reads their files itself, and hands
tokens to executors. Must not log in: Java does.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from yarrow.runtime.config.options import security
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.fs.hadoop_login import HadoopLogin, HadoopLoginError, known_reason
from yarrow.runtime.fs.hadoop_tokens import (
    HDFS_KIND,
    RM_KIND,
    TOKEN_FILE_VARIABLE,
    TokenFileError,
    read_tokens,
    token_for,
)
from yarrow.runtime.fs.webhdfs_credentials import hdfs_services
from yarrow.runtime.yarn.gateways import YarnError
from yarrow.runtime.yarn.hadoop_configuration import HadoopConfiguration

#: YARN sets it in each container. A keytab is a file of another host there.
_CONTAINER: Final = "CONTAINER_ID"
_NO_LOGIN: Final = "Client cannot authenticate via"


def login_settings(
    config: Settings, hadoop: HadoopConfiguration, staging: str, environment: Mapping[str, str]
) -> dict[str, str]:
    """Spark's keys for a login by keytab, which Spark repeats for executors; none in containers, which have tokens.

    `staging`: folder on HDFS that Spark writes to. Raises YarnError where a token is missing, or the login is not one.
    """
    if not hadoop.is_secured:
        return {}
    if environment.get(_CONTAINER):
        _check_tokens(hadoop, staging, environment.get(TOKEN_FILE_VARIABLE, ""))
        return {}
    login = HadoopLogin.of(config)
    try:
        login.check()
    except HadoopLoginError as error:
        raise YarnError(str(error)) from None
    if not login.keytab:
        return {}
    further = config.get(security.KERBEROS_FILE_SYSTEMS) or ()
    return {
        "spark.kerberos.keytab": os.path.abspath(login.keytab),
        "spark.kerberos.principal": login.principal,
        **({"spark.kerberos.access.hadoopFileSystems": ",".join(further)} if further else {}),
    }


def reason_of(said: str, environment: Mapping[str, str]) -> str:
    """What Java says of its failed start, and where Kerberos is the reason, what to do."""
    if environment.get(_CONTAINER) and _NO_LOGIN in said:
        return (
            f"{said} (this container has no token for that address: name its file system in"
            f" {security.KERBEROS_FILE_SYSTEMS.key} when you start the application)"
        )
    return known_reason(said) or said


def _check_tokens(hadoop: HadoopConfiguration, staging: str, file: str) -> None:
    try:
        if not file:
            raise FileNotFoundError(f"{TOKEN_FILE_VARIABLE} is not set")
        tokens = read_tokens(Path(file))
    except (OSError, TokenFileError) as error:
        raise YarnError(f"Hadoop asks for Kerberos, and this container has no tokens: {error}") from None
    wanted = {
        RM_KIND: ("YARN's ResourceManager", any(token.kind == RM_KIND for token in tokens)),
        HDFS_KIND: (
            staging,
            token_for(tokens, (HDFS_KIND,), hdfs_services(staging, hadoop.properties)) is not None,
        ),
    }
    missing = [f"{kind} for {place}" for kind, (place, is_there) in wanted.items() if not is_there]
    if missing:
        raise YarnError(
            f"Spark's application needs tokens that this container lacks: {' and '.join(missing)}. The application"
            f" gets them when it is submitted: submit it by `yarrow`, and name further file systems in"
            f" {security.KERBEROS_FILE_SYSTEMS.key}"
        )
