"""State as a table: reads, transforms and writes savepoints without a cluster. (Names of Flink's Java API.)"""
