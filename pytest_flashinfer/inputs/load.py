"""Tensors stored for a workload."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_flashinfer.data.blobs import BlobError, find_tensor
from pytest_flashinfer.inputs.errors import BadData

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from pytest_flashinfer.data.model import Definition, InputSpec


def load_tensor(
    source: InputSpec, definition: Definition, name: str, sizes: Mapping[str, int], root: Path | None
) -> Any:
    """Return one stored tensor on the CPU, mapped from its file; a Python scalar where the input is one.

    `sizes` are the axes that the workload gives. Raises BadData with the reason in one line.
    """
    from safetensors import SafetensorError, safe_open

    try:
        stored = find_tensor(root or Path(), source, definition, name, sizes)
        with safe_open(str(stored.path), framework="pt") as blob:
            tensor: torch.Tensor = blob.get_tensor(stored.key)
    except BlobError as error:
        raise BadData(f"input `{name}`: {error.message}", error.kind) from error
    except (OSError, SafetensorError) as error:
        raise BadData(f"input `{name}`: {source.path}: {error}") from error
    if definition.inputs[name].shape is None:
        return tensor.reshape(()).item()
    return tensor
