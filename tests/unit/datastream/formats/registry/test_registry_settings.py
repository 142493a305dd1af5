"""Settings of a registry: properties of Confluent's serializers are refused with what stands for them here."""

from __future__ import annotations

from typing import Any

import pytest

from yarrow.datastream.formats.registry import (
    ConfluentRegistryAvroDeserializationSchema,
    ConfluentRegistryAvroSerializationSchema,
    SubjectNameStrategy,
)
from yarrow.datastream.formats.registry.settings import RegistrySettings
from yarrow.runtime.common.errors import InvalidProgramError

URL = "http://localhost:1"
ORDER = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}'
by_generic = ConfluentRegistryAvroSerializationSchema.for_generic


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("auto.register.schemas", 'registration="lookup"'),
        ("use.latest.version", 'registration="latest"'),
        ("subject.name.strategy", "SubjectNameStrategy"),
    ],
)
def test_what_stands_for_a_property_of_a_serializer_is_said(name: str, instead: str) -> None:
    with pytest.raises(InvalidProgramError, match=rf"{name} is no property here; .*{instead}"):
        RegistrySettings.of(URL, {name: "true"})


@pytest.mark.parametrize(
    ("given", "normalizes"), [(True, True), ("TRUE", True), (False, False), (None, False)]
)
def test_schemas_are_compared_in_a_normal_form_on_request(given: Any, normalizes: bool) -> None:
    settings = RegistrySettings.of(URL, {} if given is None else {"normalize.schemas": given})
    assert settings.normalizes is normalizes


def test_a_normal_form_is_true_or_false() -> None:
    with pytest.raises(InvalidProgramError, match=r"normalize.schemas must be true or false, not 'maybe'"):
        RegistrySettings.of(URL, {"normalize.schemas": "maybe"})


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"subject": ""}, "the name of a subject, .* SubjectNameStrategy.TOPIC_NAME.*, not ''"),
        ({"schema": 7}, "an AvroSchema, its JSON, or a RegistrySubject is expected, not int"),
        ({"schema": '"long"'}, "a schema of a record is expected, not of long"),
        ({"registration": "often"}, 'registration is "register", "lookup", "latest", not \'often\''),
        (
            {"references": [("shop.User", "users", 1)]},
            r"references are SchemaReference\(name, subject, version\)",
        ),
    ],
)
def test_a_writer_that_cannot_be_is_refused_where_it_is_built(
    arguments: dict[str, Any], problem: str
) -> None:
    given: dict[str, Any] = {"subject": "orders-value", "schema": ORDER, "url": URL, **arguments}
    with pytest.raises(InvalidProgramError, match=f"ConfluentRegistryAvroSerializationSchema: {problem}"):
        by_generic(**given)


@pytest.mark.parametrize(
    ("strategy", "key", "value"),
    [
        (SubjectNameStrategy.TOPIC_NAME, "orders-key", "orders-value"),
        (SubjectNameStrategy.RECORD_NAME, "shop.Order", "shop.Order"),
        (SubjectNameStrategy.TOPIC_RECORD_NAME, "orders-shop.Order", "orders-shop.Order"),
    ],
)
def test_subjects_are_those_of_confluents_strategies(
    strategy: SubjectNameStrategy, key: str, value: str
) -> None:
    assert strategy.subject("shop.Order", "orders", True) == key
    assert strategy.subject("shop.Order", "orders", False) == value


def test_a_password_in_the_address_of_tokens_is_refused_and_not_shown() -> None:
    oauth = {
        "bearer.auth.client.id": "me",
        "bearer.auth.client.secret": "hidden-1",
        "bearer.auth.scope": "all",
        "bearer.auth.issuer.endpoint.url": "http://me:hidden-2@localhost:2/token",
    }
    with pytest.raises(
        InvalidProgramError, match=r"bearer.auth.issuer.endpoint.url names a user; give"
    ) as told:
        RegistrySettings.of(URL, oauth)
    assert "hidden" not in str(told.value)


class Decrypting(ConfluentRegistryAvroDeserializationSchema):
    """Reads messages in its own way."""


def test_a_class_of_the_users_stays_where_a_snapshot_gives_the_schema() -> None:
    made = ConfluentRegistryAvroDeserializationSchema.for_generic(ORDER, URL)
    own = Decrypting(*made.__reduce__()[1])
    assert type(own.with_kept_schema(own.kept_schema())) is Decrypting
