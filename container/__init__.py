"""The package `yarrow.container`.

Importing it as bare `container` is refused, for it would shadow modules of user programs.
"""

if __name__ == "container":
    raise ImportError(
        "import this package as yarrow.container, not as container: the folder is reached through the yarrow package"
    )
