"""The package `yarrow.am`.

Importing it as bare `am` is refused, because that name would hide modules of user programs.
"""

if __name__ == "am":
    raise ImportError(
        "import this package as yarrow.am, not as am: the folder is reached through the yarrow package"
    )
