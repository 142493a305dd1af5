"""Protobuf messages whose schemas are in a registry.

Owner: none. Importing it loads no client library.
"""

from yarrow.datastream.formats.registry.protobuf.reading import ConfluentRegistryProtobufDeserializationSchema
from yarrow.datastream.formats.registry.protobuf.writing import ConfluentRegistryProtobufSerializationSchema

__all__ = ["ConfluentRegistryProtobufDeserializationSchema", "ConfluentRegistryProtobufSerializationSchema"]
