"""Protobuf messages whose writers' schemas are in a registry.

Owner: none. Importing it loads no client library.
"""

from yarrow.datastream.formats.registry.protobuf.reading import ConfluentRegistryProtobufDeserializationSchema

__all__ = ["ConfluentRegistryProtobufDeserializationSchema"]
