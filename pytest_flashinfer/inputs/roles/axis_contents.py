"""What lies along an axis: rows of floats, or ids of tokens and nothing else."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from pytest_flashinfer.inputs.constraints.trees import names_of
from pytest_flashinfer.inputs.roles.float_roles import DATA

if TYPE_CHECKING:
    from pytest_flashinfer.inputs.contract import Contract
    from pytest_flashinfer.inputs.plan import Plan

_ANY_ID: Final = ("index", None)  # by which nothing is looked up


def rows(contract: Contract, plan: Plan) -> frozenset[str]:
    """Return the free axes along which the rows of floats lie."""
    data = {name for name, role in plan.roles.items() if role.kind in DATA}  # a dtype that is none has no role
    dims = [trees for name, trees in contract.dims.items() if trees and name in data]
    return frozenset(ast.unparse(trees[-1]) for trees in dims if len(trees) > 1) & set(contract.free)


def tokens(contract: Contract, plan: Plan) -> frozenset[str]:
    """Return the axes along which there are tokens only: those of a prompt, or of an answer that may not have begun."""
    every = {**contract.dims, **contract.output_dims}
    named = {name: frozenset().union(*map(names_of, trees or ())) for name, trees in every.items()}
    ids = {name for name, role in plan.roles.items() if role.kind == "token_ids" or (role.kind, role.limit) == _ANY_ID}
    others = frozenset().union(*(names for name, names in named.items() if name not in ids))
    return frozenset().union(*(named[name] for name in ids)) - others
