"""Mutants: decisions of the engine that are broken on purpose, one at a time, and the tests that must notice.

The entry is runner.py; catalogue/ holds the mutants, one module an area.
"""
