"""What can go wrong between a contract and its inputs; every message is one line that says what to do next."""

from __future__ import annotations


class InputsError(Exception):
    """Inputs cannot be made for these axes; `str()` is one line for the user."""


class Unsatisfiable(InputsError):  # noqa: N818 - the name says more without a suffix
    """No rule makes `constraint` true; the message names it and what would help.

    `advised`: the constraint itself is at fault, rather than the sizes or the rules.
    """

    def __init__(self, constraint: str, detail: str, advice: str = "") -> None:
        self.constraint = constraint
        self.advised = bool(advice)
        supply = "supply the inputs with an `inputs` fixture in a conftest.py beside the definition, or `init` in it"
        super().__init__(f"constraint `{constraint}` cannot be met: {detail}; {advice or supply}")


class Undecided(Unsatisfiable):
    """Nothing says how large an axis is; there is no constraint that could not be met."""

    def __init__(self, name: str, message: str) -> None:
        self.constraint = f"{name} >= 0"
        self.advised = True
        super(Unsatisfiable, self).__init__(message)


class Unbound(InputsError):  # noqa: N818 - as above
    """A constant axis has no value, and neither the workload nor the data gives it one."""


class AxisConflict(InputsError):  # noqa: N818 - as above
    """Sizes that were given, by a workload or its data, contradict `constraint`; `given` says for which it is false."""

    def __init__(self, constraint: str, given: str, advice: str = "correct the workload") -> None:
        self.constraint = constraint
        self.given = given
        super().__init__(f"constraint `{constraint}` does not hold for {given}; {advice}")


class BadData(InputsError):  # noqa: N818 - as above
    """What a workload's line asks for cannot be made; `kind` is `fault`, or `skip` where it is for another run.

    A tensor stored for it is missing or is not what the definition declares, say.
    """

    def __init__(self, message: str, kind: str = "fault") -> None:
        self.kind = kind
        super().__init__(message)


class UnknownDtype(InputsError):  # noqa: N818 - as above
    """A dtype name that no torch dtype stands for."""
