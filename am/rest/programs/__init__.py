"""Uploaded programs: their storage, and the child process in which their main runs."""
