"""Long texts: how they begin and how they end, which is what tells most."""

from __future__ import annotations


def excerpt(text: str, head: int, tail: int) -> str:
    """Return a text, or its first and last characters and a line that says how many are left out between them."""
    left = len(text) - head - tail
    return text if left <= 0 else f"{text[:head]}\n[... {left:,} characters left out ...]\n{text[len(text) - tail :]}"
