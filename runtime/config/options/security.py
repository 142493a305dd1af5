"""Options of TLS, of the entrance to REST, and of Kerberos.

Owner: any thread; declarations only. Nothing here reads a value; defaults are Flink's where the key is
Flink's, and the text says so where they are not.
"""

from __future__ import annotations

import enum
from typing import Final

from yarrow.common.values.value_types import BOOLEAN, DURATION, FRACTION, STRING, enum_of, list_of
from yarrow.runtime.config.values.option import option, optional


class RestAuthentication(enum.Enum):
    """The proof that a client of REST must show, on YARN or on an interface that other hosts reach."""

    #: The bearer token of the application or cluster.
    TOKEN = "token"
    #: No proof.
    NONE = "none"


INTERNAL_ENABLED: Final = option(
    "security.ssl.internal.enabled",
    BOOLEAN,
    "true",
    "Whether processes of the cluster prove who they are to each other by TLS. Flink's default is false; here"
    " certificates are made for each application, so that it needs no set-up.",
)
CLUSTER_DIRECTORY: Final = optional(
    "security.cluster.directory",
    STRING,
    "The private directory of a standalone cluster: certificates, the secret of its data connections, process"
    " ids. Mode 0700; TaskExecutors on other hosts need the same files, shared or copied.",
    unset="a directory of the user below `env.pid.dir`, named by address and port of the JobManager",
)
SNAPSHOT_SECRET_FILE: Final = optional(
    "security.snapshot.secret-file",
    STRING,
    "A file of the JobManager with mode 0600 whose content seals the metadata of checkpoints and savepoints. With it,"
    " pickled state is restored only from snapshots that bear this seal. Yarrow's own.",
    unset="nothing is sealed",
)
SNAPSHOT_TRUST_PICKLE: Final = option(
    "security.snapshot.trust-pickle",
    BOOLEAN,
    "true",
    "Whether a restore without a secret reads pickled state. Reading a pickle runs whatever its writer "
    "put there. Yarrow's own.",
)
REST_AUTHENTICATION: Final = option(
    "security.rest.authentication",
    enum_of(RestAuthentication),
    "token",
    "What clients of REST show on YARN, and on any interface that other hosts reach. `token` asks for the "
    "token that `yarrow token` prints. With `none` everybody who reaches the port runs code on the "
    "cluster. A server on a loopback interface asks for no token. Yarrow's own.",
)
REST_ENABLED: Final = option(
    "security.ssl.rest.enabled",
    BOOLEAN,
    "false",
    "Whether REST, commands and remote jobs use TLS. The server needs `security.ssl.rest.keystore`, "
    "clients `security.ssl.rest.truststore`. On YARN the client reads the files and gives their content "
    "to the master of its application, so no node needs them. YARN's proxy needs none either: it reaches "
    "a listener of the master's own host without TLS.",
)
REST_AUTHENTICATION_ENABLED: Final = option(
    "security.ssl.rest.authentication-enabled",
    BOOLEAN,
    "false",
    "Whether clients of REST must show, besides the token, a certificate of `security.ssl.rest.keystore` that an"
    " authority in the server's `security.ssl.rest.truststore` has issued.",
)
REST_VERIFY_HOSTNAME: Final = option(
    "security.ssl.rest.verify-hostname",
    BOOLEAN,
    "false",
    "Whether clients compare the host name of the REST server with its certificate. On YARN the master may run on any"
    " node: the certificate has to name them all, or `security.ssl.rest.cert.fingerprint` to name the certificate.",
)
PROTOCOL: Final = option(
    "security.ssl.protocol", STRING, "TLSv1.2", "The oldest version of TLS that is accepted."
)
INTERNAL_KEYSTORE: Final = optional(
    "security.ssl.internal.keystore",
    STRING,
    "PKCS12 or PEM file with certificate and key for connections between processes of the cluster.",
    unset="made anew for each application",
    fallback_keys=("security.ssl.keystore",),
)
INTERNAL_KEYSTORE_PASSWORD: Final = optional(
    "security.ssl.internal.keystore-password",
    STRING,
    "Password of the keystore for connections between processes of the cluster.",
    unset="no password",
    fallback_keys=("security.ssl.keystore-password",),
)
INTERNAL_KEY_PASSWORD: Final = optional(
    "security.ssl.internal.key-password",
    STRING,
    "Password of the key in the keystore for connections between processes of the cluster.",
    unset="no password",
    fallback_keys=("security.ssl.key-password",),
)
INTERNAL_TRUSTSTORE: Final = optional(
    "security.ssl.internal.truststore",
    STRING,
    "PKCS12 or PEM file with the certificates trusted for connections between processes of the cluster.",
    unset="made anew for each application",
    fallback_keys=("security.ssl.truststore",),
)
INTERNAL_TRUSTSTORE_PASSWORD: Final = optional(
    "security.ssl.internal.truststore-password",
    STRING,
    "Password of the truststore for connections between processes of the cluster.",
    unset="no password",
    fallback_keys=("security.ssl.truststore-password",),
)
INTERNAL_CERT_FINGERPRINT: Final = optional(
    "security.ssl.internal.cert.fingerprint",
    STRING,
    "SHA-1 fingerprint of the only certificate accepted for connections between processes of the cluster.",
    unset="every certificate of a trusted authority",
)
REST_KEYSTORE: Final = optional(
    "security.ssl.rest.keystore",
    STRING,
    "PKCS12 or PEM file with certificate and key for REST.",
    unset="none",
    fallback_keys=("security.ssl.keystore",),
)
REST_KEYSTORE_PASSWORD: Final = optional(
    "security.ssl.rest.keystore-password",
    STRING,
    "Password of the keystore for REST.",
    unset="no password",
    fallback_keys=("security.ssl.keystore-password",),
)
REST_KEY_PASSWORD: Final = optional(
    "security.ssl.rest.key-password",
    STRING,
    "Password of the key in the keystore for REST.",
    unset="no password",
    fallback_keys=("security.ssl.key-password",),
)
REST_TRUSTSTORE: Final = optional(
    "security.ssl.rest.truststore",
    STRING,
    "PKCS12 or PEM file with the certificates trusted for REST.",
    unset="none",
    fallback_keys=("security.ssl.truststore",),
)
REST_TRUSTSTORE_PASSWORD: Final = optional(
    "security.ssl.rest.truststore-password",
    STRING,
    "Password of the truststore for REST.",
    unset="no password",
    fallback_keys=("security.ssl.truststore-password",),
)
REST_CERT_FINGERPRINT: Final = optional(
    "security.ssl.rest.cert.fingerprint",
    STRING,
    "SHA-1 fingerprint of the only certificate accepted for REST.",
    unset="every certificate of a trusted authority",
)

KERBEROS_KEYTAB: Final = optional(
    "security.kerberos.login.keytab",
    STRING,
    "The keytab to log in with.",
    unset="the ticket cache is used",
    deprecated_keys=("security.keytab",),
)
KERBEROS_PRINCIPAL: Final = optional(
    "security.kerberos.login.principal",
    STRING,
    "The principal of the keytab.",
    unset="the ticket cache is used",
    deprecated_keys=("security.principal",),
)
KERBEROS_USE_TICKET_CACHE: Final = option(
    "security.kerberos.login.use-ticket-cache",
    BOOLEAN,
    "true",
    "Whether the user's ticket cache is read.",
)
KERBEROS_FILE_SYSTEMS: Final = optional(
    "security.kerberos.access.hadoopFileSystems",
    list_of(STRING, ";,"),
    "Further file systems to get tokens for.",
    unset="the default file system only",
    deprecated_keys=("yarn.security.kerberos.additionalFileSystems",),
)
DELEGATION_TOKENS_ENABLED: Final = option(
    "security.delegation.tokens.enabled",
    BOOLEAN,
    "true",
    "Whether the ApplicationMaster gets new delegation tokens by the keytab. Those of the submission are always there.",
    deprecated_keys=("security.kerberos.fetch.delegation-token",),
)
DELEGATION_TOKENS_RETRY_BACKOFF: Final = option(
    "security.delegation.tokens.renewal.retry.backoff",
    DURATION,
    "1 h",
    "Longest pause between two attempts to get new tokens. The first one is 10 s, and each is twice the one before.",
    deprecated_keys=("security.kerberos.tokens.renewal.retry.backoff",),
)
DELEGATION_TOKENS_TIME_RATIO: Final = option(
    "security.delegation.tokens.renewal.time-ratio",
    FRACTION,
    "0.75",
    "Part of a token's life after which it is obtained anew.",
    deprecated_keys=("security.kerberos.tokens.renewal.time-ratio",),
)
