"""Uploaded programs: where they are kept, and the child process in which their main runs."""
