"""What source and sink share: properties, the client library, partitions and errors."""
