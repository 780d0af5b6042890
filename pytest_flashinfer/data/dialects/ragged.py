"""Ragged axes: a variable axis with a `parent` has one length for each element of it.

Tensors cannot be ragged, so what a kernel receives depends on what the reference asks for, by a parameter of its own
besides the declared inputs:

- `M_indptr` [G + 1] int32: the axes `G, M` of every tensor are one packed axis `M_total`; element `g` has its rows from
  `M_indptr[g]` up to `M_indptr[g + 1]`;
- `M_lengths` [G] int32: tensors are dense, `M` is the largest length, and what lies past a length is padding;
- neither: nobody can be told of lengths, so all of them are `M`.

Axes may nest deeper: `N` with the parent `M` has one length for each element of `M`, wherever those are. Where `M` is
packed these are its `M_total` rows, so `N_indptr` is [M_total + 1] and `N_lengths` [M_total]; where it is not they are
those of `G` and `M`, so `N_lengths` is [G, M], and `N` cannot be packed.

The definition is rewritten to say just that, with an input, axes and constraints like any other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_flashinfer.data.source import BrokenSource, functions, parse_python, signature

if TYPE_CHECKING:
    from pytest_flashinfer.data.dialects.draft import Draft


def unroll(draft: Draft) -> None:
    """Give every ragged axis the input that its reference asks for, the outermost first."""
    if not isinstance(draft.raw.get("inputs"), dict):
        return
    within: dict[str, tuple[str, ...]] = {}  # the axes that tell the elements of one that is not packed apart
    for name in _outermost_first(draft):
        parent = draft.raw["axes"][name]["parent"]  # which may have been packed by now, and renamed
        elements = within.get(parent, (parent,))
        asked = _parameters(draft)
        if f"{name}_indptr" in asked and f"{name}_indptr" not in draft.raw["inputs"]:
            _pack(draft, name, elements, asked)
            continue
        within[name] = (*elements, name)
        if f"{name}_lengths" in asked and f"{name}_lengths" not in draft.raw["inputs"]:
            _pad(draft, name, elements, asked)
        elif not {f"{name}_indptr", f"{name}_lengths"} & draft.raw["inputs"].keys():
            draft.notes.append(f"axis {name!r}: the reference takes no {name}_indptr or {name}_lengths: all are {name}")


def _outermost_first(draft: Draft) -> list[str]:
    """List the ragged axes, parents before what is nested in them; those nested in themselves are left out."""
    axes = {str(key): axis for (_, key), axis in draft.objects("axes") if axis.get("type") == "var"}
    nested = {name: axis["parent"] for name, axis in axes.items() if isinstance(axis.get("parent"), str)}
    inside: dict[str, list[str]] = {}
    for name, parent in nested.items():
        inside.setdefault(parent, []).append(name)
    order = [name for name, parent in nested.items() if parent not in nested]
    for name in order:  # which grows by what is nested in it
        order += inside.get(name, ())
    for name in nested.keys() - order:
        if nested[name] != name:  # which a rule tells
            draft.faults.append((("axes", name, "parent"), f"axis {name!r} is nested in itself, through its parents"))
    return order


def _parameters(draft: Draft) -> tuple[str, ...]:
    tree = parse_python(draft.text("reference") or "")
    function = None if isinstance(tree, BrokenSource) else functions(tree).get(draft.entry)
    return () if function is None else signature(function).positional


def _pack(draft: Draft, name: str, elements: tuple[str, ...], asked: tuple[str, ...]) -> None:
    """Make one axis of the parent and `name` wherever they stand side by side."""
    packed, bounds, parent = f"{name}_total", f"len_{name}_indptr", elements[-1]
    if len(elements) > 1:
        message = f"axis {name!r} cannot be packed, since {parent!r} is not: take {parent}_indptr, or {name}_lengths"
        draft.faults.append((("axes", name, "parent"), message))
        return
    touched = [(where, tensor) for where, tensor in draft.objects("inputs", "outputs") if _has(tensor, name)]
    for where, tensor in touched:
        shape = tensor["shape"]
        at = shape.index(name)
        order = tensor.get("dim_order") or list(range(len(shape)))
        apart = at == 0 or shape[at - 1] != parent
        if apart or (at in order and at - 1 in order and order.index(at) != order.index(at - 1) + 1):
            message = f"axis {name!r} is ragged: {parent!r} has to stand right before it, in memory too, to be packed"
            draft.faults.append(((*where, "shape"), message))
            return
    for _, tensor in touched:
        at = tensor["shape"].index(name)
        tensor["shape"] = [*tensor["shape"][: at - 1], packed, *tensor["shape"][at + 1 :]]
        _merge_order(tensor, at)
    axes = draft.raw["axes"]
    draft.raw["axes"] = {packed if key == name else key: axis for key, axis in axes.items()}
    draft.raw["axes"][packed] = {key: value for key, value in axes[name].items() if key != "parent"}
    draft.raw["axes"][bounds] = {"type": "expr", "expression": f"{parent} + 1"}
    for _, axis in draft.objects("axes"):
        if axis.get("parent") == name:
            axis["parent"] = packed
    _constrain(draft, f"{packed} == {name}_indptr[-1].item()")
    _insert(draft, f"{name}_indptr", (bounds,), asked)
    draft.notes.append(f"axis {name!r} in {parent!r} is ragged: packed as {packed!r}, with an input {name}_indptr")


def _merge_order(tensor: dict[str, Any], at: int) -> None:
    """Let the memory order of a tensor follow when axis `at` joins the one before it; they have to be neighbours."""
    order = tensor.get("dim_order")
    if isinstance(order, list):
        kept = [step for step in order if step != at]
        tensor["dim_order"] = [step - (step > at) if isinstance(step, int) else step for step in kept]


def _pad(draft: Draft, name: str, elements: tuple[str, ...], asked: tuple[str, ...]) -> None:
    draft.raw["axes"][name].pop("parent")
    _constrain(draft, f"max({name}_lengths) <= {name}")
    _insert(draft, f"{name}_lengths", elements, asked)
    draft.notes.append(f"axis {name!r} in {elements[-1]!r} is ragged: dense with padding, with an input {name}_lengths")


def _constrain(draft: Draft, text: str) -> None:
    constraints = draft.raw.get("constraints")
    draft.raw["constraints"] = [*(constraints if isinstance(constraints, list) else []), text]


def _insert(draft: Draft, name: str, shape: tuple[str, ...], asked: tuple[str, ...]) -> None:
    """Add an input in the place where the reference takes it."""
    tensors = list(draft.raw["inputs"].items())
    tensors.insert(min(asked.index(name), len(tensors)), (name, {"shape": list(shape), "dtype": "int32"}))
    draft.raw["inputs"] = dict(tensors)


def _has(tensor: dict[str, Any], name: str) -> bool:
    return isinstance(tensor.get("shape"), list) and name in tensor["shape"]
