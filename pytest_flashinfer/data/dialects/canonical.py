"""Forms 3 and 4: the canonical definition, and that of the data set, which has optional inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_flashinfer.data.dialects.draft import Draft


def recognises(draft: Draft) -> bool:
    """Whether it is a definition at all is for the schema to say."""
    del draft
    return True


def translate(draft: Draft) -> None:
    """Leave the document as it is."""
    optional = any("optional" in tensor for _, tensor in draft.objects("inputs", "outputs"))
    draft.form = 4 if optional else 3
