"""Configuration: typed options, files, validation and the memory budget.

Owner: any thread; all values are immutable. Other packages read options through `Settings.get` and never by
a raw key.
"""
