"""The errors of the Kafka connector. Each names topic, partition and offset as far as they are known.

Owner: none. Must not import the client library.
"""

from __future__ import annotations

from yarrow.runtime.common.errors import YarrowError


class KafkaConnectorError(YarrowError):
    """The Kafka cluster answered with an error, or in a way that the program cannot go on with."""

    #: True if the same question may be answered later.
    is_transient = False


class KafkaPropertyRefusedError(KafkaConnectorError):
    """A property has a value that the client does not know, and would not know in another attempt."""

    is_final = True


class KafkaUnreachableError(KafkaConnectorError):
    """No broker answered in time."""

    is_transient = True


class KafkaLoginRefusedError(KafkaUnreachableError):
    """Brokers refuse the login or the certificate, and would refuse it again."""

    is_transient = False
    needs_user = True


class KafkaCredentialsError(KafkaConnectorError):
    """A certificate, a key or another file of the client is missing, has expired or cannot be opened."""

    needs_user = True


class KafkaTopicMissingError(KafkaConnectorError):
    """A topic or partition that the program names does not exist, or was deleted before its bounded end."""

    needs_user = True


class KafkaTopicRemadeError(KafkaTopicMissingError):
    """A topic was deleted and made again since the job has read it: its offsets mean other records now."""

    is_final = True


class KafkaOffsetOutOfRangeError(KafkaConnectorError):
    """The offset to be read next is not on the broker: retention has removed it, or the topic was made anew."""

    is_final = True


class KafkaRecordError(KafkaConnectorError):
    """A record cannot be deserialized: the message has topic, partition and offset.

    Or a serializer returned no record: the message has the row.
    """


class KafkaDeliveryError(KafkaConnectorError):
    """A record could not be written; the message has its topic, key and the setting that decides."""


class KafkaTransactionError(KafkaConnectorError):
    """A transaction could not be begun, ended, listed or described; the message has its name."""


class KafkaTransactionTimeoutError(KafkaTransactionError):
    """The time-out of transactions is above the brokers' limit, or below the job's need.

    The message names the settings.
    """

    is_final = True


class KafkaPrefixInUseError(KafkaTransactionError):
    """Another living job has the prefix of the sink's transactions; the message has its id."""

    is_final = True
