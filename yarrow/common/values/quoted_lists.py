"""Lists written as one text, with quotes round the elements that hold separators: how configuration writes them.

Pure functions. What an element means is the business of the option's type.
"""

from __future__ import annotations

from collections.abc import Sequence


def split_quoted(text: str, separators: str) -> list[str]:
    """Splits at separators outside quotes and strips each part; empty parts vanish.

    A quote is doubled inside quotes of its own kind. Raises ValueError when a quote stays open.
    """
    parts: list[str] = []
    current: list[str] = []
    quoted_part = False
    position = 0

    def finish() -> None:
        part = "".join(current)
        if not quoted_part:
            part = part.strip()
        if part or quoted_part:
            parts.append(part)

    while position < len(text):
        character = text[position]
        if character in "'\"" and not "".join(current).strip() and not quoted_part:
            content, position = _quoted(text, position)
            current, quoted_part = [content], True
        elif character in separators:
            finish()
            current, quoted_part = [], False
            position += 1
        else:
            if quoted_part and not character.isspace():
                raise ValueError("text follows the closing quote of an element")
            if not quoted_part:
                current.append(character)
            position += 1
    finish()
    return parts


def _quoted(text: str, start: int) -> tuple[str, int]:
    """The content of the quoted part that begins at `start`, and the position behind it."""
    quote = text[start]
    content: list[str] = []
    position = start + 1
    while position < len(text):
        if text[position] == quote:
            if text[position + 1 : position + 2] != quote:
                return "".join(content), position + 1
            position += 1
        content.append(text[position])
        position += 1
    raise ValueError(f"the quote {quote} is not closed")


def join_quoted(parts: Sequence[str], separators: str) -> str:
    """The inverse of `split_quoted`: quotes the parts that need it and joins with the first separator."""

    def shown(part: str) -> str:
        plain = part and part == part.strip() and not part.startswith(("'", '"', "["))
        if plain and not any(separator in part for separator in separators):
            return part
        return "'" + part.replace("'", "''") + "'"

    return separators[0].join(shown(part) for part in parts)
