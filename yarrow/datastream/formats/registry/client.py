"""The one module that imports the client of schema registries: schemas asked for and registered, and how errors read.

Owner: the calling thread; a client belongs to one thread. It is imported in workers, after the fork, and where a
program asks for a schema while it is built. The master never imports it. Schemas of a registry do not change, so a
client keeps each. Failures that pass are tried again, until a deadline.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry import SchemaReference as ClientReference
from confluent_kafka.schema_registry.common.schema_registry_client import is_retriable
from confluent_kafka.schema_registry.error import OAuthTokenError
from confluent_kafka.schema_registry.error import SchemaRegistryError as ClientError

from yarrow.datastream.formats.registry.errors import (
    IncompatibleSchemaError,
    SchemaNotFoundError,
    SchemaRegistryError,
)
from yarrow.datastream.formats.registry.registered_schema import RegisteredSchema, SchemaReference
from yarrow.datastream.formats.registry.settings import RETRY_TIMEOUT, RegistrySettings
from yarrow.runtime.common.clock import Clock, SystemClock
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.common.retry_pauses import RetryPauses

T = TypeVar("T")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
#: Codes of registries for what they do not have.
_UNKNOWN = range(40400, 40500)
#: Status of a schema that breaks the rule of its subject.
_INCOMPATIBLE = 409


class RegistryClient:
    """Asks one registry. Raises InvalidProgramError for settings that the client refuses."""

    def __init__(
        self,
        settings: RegistrySettings,
        clock: Clock | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._settings = settings
        self._clock = clock or SystemClock()
        self._sleep = sleep
        self._by_id: dict[int, RegisteredSchema] = {}
        self._by_version: dict[tuple[str, int], RegisteredSchema] = {}
        # Settings are tried here, and a file that is missing is told.
        self._connected().close()

    def _connected(self) -> SchemaRegistryClient:
        settings = self._settings
        try:
            return SchemaRegistryClient(_client_settings(settings))
        except (ValueError, TypeError, OSError) as error:  # OSError: a file of a certificate
            raise InvalidProgramError(
                settings.with_secrets_hidden(
                    f"Schema registry {settings.url}: these settings cannot be used: {error}. Correct them, and put"
                    " files of certificates on every machine that runs the job"
                )
            ) from None

    def by_id(self, schema_id: int) -> RegisteredSchema:
        """Return the schema of an id, with those that it refers to. Raises SchemaRegistryError."""
        found = self._by_id.get(schema_id)
        if found is None:
            schema = self._asked(f"schema {schema_id}", lambda client: client.get_schema(schema_id))
            found = self._by_id[schema_id] = self._registered(schema, schema_id)
        return found

    def version(self, subject: str, version: int | None = None) -> RegisteredSchema:
        """Return a version of a subject; None = the latest one. Raises SchemaRegistryError."""
        found = None if version is None else self._by_version.get((subject, version))
        if found is None:
            shown = "the latest version" if version is None else f"version {version}"
            asked: Any = "latest" if version is None else version
            answer = self._asked(
                f"{shown} of the subject {subject!r}", lambda client: client.get_version(subject, asked)
            )
            found = self._registered(answer.schema, answer.schema_id, subject, answer.version)
            assert answer.version is not None
            self._by_version[subject, answer.version] = found
        return found

    def places(self, schema_id: int) -> list[tuple[str, int]]:
        """Return subjects and versions of a schema. Raises SchemaRegistryError."""
        found = self._asked(
            f"the subjects of schema {schema_id}", lambda client: client.get_schema_versions(schema_id)
        )
        return sorted((str(place.subject), int(place.version or 0)) for place in found)

    # ------------------------------------------------------------------ schemas of writers

    def register(self, subject: str, schema: RegisteredSchema) -> RegisteredSchema:
        """Return a schema as the registry has it under a subject, as a new version if it is not there yet.

        The registry may tell no version. Raises IncompatibleSchemaError for a schema that breaks the rule of the
        subject, and SchemaRegistryError.
        """
        normalize = self._settings.normalizes
        found = self._asked(
            f"the registration of a schema under the subject {subject!r}",
            lambda client: client.register_schema_full_response(subject, _asked_schema(schema), normalize),
        )
        return replace(schema, schema_id=found.schema_id, subject=subject, version=found.version)

    def lookup(self, subject: str, schema: RegisteredSchema) -> RegisteredSchema:
        """Return a schema as the registry has it under a subject.

        Raises SchemaNotFoundError if the subject has no such version, and SchemaRegistryError.
        """
        normalize = self._settings.normalizes
        found = self._asked(
            f"the program's schema under the subject {subject!r}",
            lambda client: client.lookup_schema(subject, _asked_schema(schema), normalize),
        )
        return replace(schema, schema_id=found.schema_id, subject=subject, version=found.version)

    def versions(self, subject: str) -> list[int]:
        """Return the versions of a subject, the first one first. Raises SchemaRegistryError."""
        return sorted(
            self._asked(
                f"the versions of the subject {subject!r}", lambda client: client.get_versions(subject)
            )
        )

    def compatibility(self, subject: str) -> str:
        """Return the rule for the next version of a subject, such as BACKWARD. Raises SchemaRegistryError."""

        def ask(client: SchemaRegistryClient) -> str:
            try:
                return str(client.get_compatibility(subject))
            except ClientError as error:
                # A subject without a rule of its own has that of the registry.
                if error.http_status_code != 404:
                    raise
                return str(client.get_compatibility())

        return self._asked(f"the compatibility of the subject {subject!r}", ask).upper()

    # ------------------------------------------------------------------ schemas of the registry

    def _registered(
        self, schema: Any, schema_id: int | None, subject: str | None = None, version: int | None = None
    ) -> RegisteredSchema:
        references = tuple(
            SchemaReference(part.name, part.subject, part.version) for part in schema.references or ()
        )
        kind, referred = schema.schema_type or "AVRO", self.referred(references)
        return RegisteredSchema(kind, schema.schema_str, references, schema_id, subject, version, referred)

    def referred(self, references: Sequence[SchemaReference]) -> tuple[tuple[str, str], ...]:
        """Return names and texts of the schemas behind references; those before others refer to none behind them.

        Raises SchemaRegistryError.
        """
        found: dict[str, str] = {}
        self._refer(references, found)
        return tuple(found.items())

    def _refer(self, references: Sequence[SchemaReference], referred: dict[str, str]) -> None:
        for reference in references:
            found = self.version(reference.subject, reference.version)
            for name, text in found.referred:
                referred.setdefault(name, text)
            referred.setdefault(reference.name, found.text)

    # ------------------------------------------------------------------ requests

    def _asked(self, what: str, ask: Callable[[SchemaRegistryClient], T]) -> T:
        """The answer to a request, which is sent again as long as it fails for a time."""
        # Requests are few, so no connection stays open between two of them.
        with self._connected() as client:
            return self._answer(client, what, ask)

    def _answer(self, client: SchemaRegistryClient, what: str, ask: Callable[[SchemaRegistryClient], T]) -> T:
        # Clients that failed together ask again one by one.
        pauses = RetryPauses(self._settings.retry_seconds, _FIRST_PAUSE, _LONGEST_PAUSE, self._clock)
        while True:
            try:
                return ask(client)
            except Exception as error:  # the client raises those of its HTTP library, too
                pause = pauses.next_seconds() if _passes(error) else None
                if pause is None:
                    raise self._error(what, error) from None
            self._sleep(pause)

    def _error(self, what: str, error: Exception) -> SchemaRegistryError:
        url = self._settings.url
        kind = SchemaRegistryError
        if not isinstance(error, ClientError):
            text = f"the schema registry at {url} cannot be asked for {what}: {_shown(error)}"
            if _passes(error):
                text += (
                    f"; tried for {self._settings.retry_seconds:g} s ({RETRY_TIMEOUT}). Check that it runs and that"
                    " this machine reaches it"
                )
            elif isinstance(error, OAuthTokenError):
                text += ". Check the properties bearer.auth.client.id and those beside it"
            else:
                text += ". Check the URL, and ssl.ca.location where it begins with https:"
        else:
            status, answer = error.http_status_code, str(error.error_message)[:500]
            text = f"the schema registry at {url} refuses {what} (HTTP {status}): {answer}"
            if status in (401, 403):
                text += ". Give basic.auth.user.info or bearer.auth.token of a user who may do this"
            elif status == _INCOMPATIBLE:
                kind = IncompatibleSchemaError
            elif status == 404 and error.error_code in _UNKNOWN:
                kind = SchemaNotFoundError
                text = f"the schema registry at {url} does not have {what}: {answer}. Register it, or correct the name"
            elif status == 404:
                text += (
                    ". Correct the path of the URL; that of Apicurio's registry ends with /apis/ccompat/v7"
                )
            elif _passes(error):
                text += f"; tried for {self._settings.retry_seconds:g} s ({RETRY_TIMEOUT}). Look into its log"
        failed = kind(self._settings.with_secrets_hidden(text))
        # A registry that answers refuses the same again.
        failed.needs_user = isinstance(error, ClientError) and not _passes(error)
        return failed


def _asked_schema(schema: RegisteredSchema) -> Schema:
    references = [ClientReference(*reference) for reference in schema.references]
    return Schema(schema.text, schema.kind, references)


def _client_settings(settings: RegistrySettings) -> dict[str, Any]:
    fields = settings.token
    if fields is None:
        return settings.client
    custom = {
        "bearer.auth.credentials.source": "CUSTOM",
        "bearer.auth.custom.provider.function": lambda config: dict(config),
        "bearer.auth.custom.provider.config": dict(fields),
    }
    return settings.client | custom


def _passes(error: BaseException) -> bool:
    """Whether the client calls a failure one that passes."""
    if isinstance(error, ClientError):
        return bool(is_retriable(error.http_status_code))
    is_transport = any(kind.__name__ == "TransportError" for kind in type(error).__mro__)
    return is_transport and "CERTIFICATE" not in str(error).upper()


def _shown(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
