"""A real Hadoop on loopback for tests, measurements and development: YARN, HDFS and ZooKeeper from published jars.

`cluster.HadoopCluster` is the one API; `scripts/hadoop` is its command line. Nothing here is a mock and
nothing of the engine depends on it.
"""
