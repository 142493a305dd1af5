"""The package `yarrow.container`.

Importing it as bare `container` is refused, because that name would hide modules of user programs.
"""

if __name__ == "container":
    raise ImportError(
        "import this package as yarrow.container, not as container: the folder is reached through the yarrow package"
    )
