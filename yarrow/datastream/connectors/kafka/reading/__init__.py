"""How a Kafka source reads: splits and offsets, the enumerator, the fetch thread and the reader."""
