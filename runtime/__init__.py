"""The package `yarrow.runtime`.

Importing it as bare `runtime` is refused, for it would shadow modules of user programs.
"""

if __name__ == "runtime":
    raise ImportError(
        "import this package as yarrow.runtime, not as runtime: the folder is reached through the yarrow package"
    )
