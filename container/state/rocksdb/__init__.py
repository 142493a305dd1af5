"""Keyed state in RocksDB on the worker's disk; `backend.rocksdb_state_backend` is its factory.

Owner: the task thread, except flushes and checkpoints (a helper thread) and uploads (the snapshot thread).
Nothing here may be called in a process that forks workers: an open database does not survive a fork.
"""
