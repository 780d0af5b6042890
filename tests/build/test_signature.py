"""CASES: destination style and signatures."""

from __future__ import annotations

import operator

import pytest

from pytest_flashinfer.build.errors import BuildError
from pytest_flashinfer.build.signature import check_signature

INPUTS, OUTPUTS = ["x", "w"], ["y"]


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w, y: None,
        lambda x, w, y, stream=None: None,
        lambda *args: None,
        lambda x, *rest: None,
        lambda x, w, y, *, stream=None: None,
        lambda x, w=None, y=None: None,
        lambda x, w, y, **options: None,
        operator.itemgetter(0),
        print,
    ],
)
def test_case_09_destination_style_accepts(function):
    check_signature(function, INPUTS, OUTPUTS, destination_passing=True)


def refuse(function, *, destination_passing, module=False):
    with pytest.raises(BuildError) as caught:
        check_signature(function, INPUTS, OUTPUTS, destination_passing=destination_passing, module=module)
    return str(caught.value)


def test_case_09_value_returning_function_under_destination_style():
    def run(x, w): ...

    message = refuse(run, destination_passing=True)
    assert message == "run needs x, w, y; got x, w; set destination_passing_style=false to return"


def test_case_09_keyword_only_is_refused_with_the_reason():
    def run(x, *, w, y): ...

    message = refuse(run, destination_passing=True)
    assert "takes w, y by keyword only" in message
    assert "in the order x, w, y" in message


def test_a_writer_under_returning_style_gets_the_opposite_hint():
    def run(x, w, y): ...

    message = refuse(run, destination_passing=False)
    assert message == "run needs x, w; got x, w, y; set destination_passing_style=true to write into the outputs"


def test_the_author_of_a_module_is_told_what_python_understands():
    told = []
    for style, parameters in ((True, "x, w"), (False, "x, w, y")):
        names = {"destination_passing_style": style}
        exec(f"def run({parameters}): ...", names)
        told.append(refuse(names["run"], destination_passing=style, module=True))
    assert told[0].endswith("; set destination_passing_style = False to return")
    assert told[1].endswith("; set destination_passing_style = True to write into the outputs")


def test_who_forgets_to_return_is_told_that_nothing_is_returned():
    """Nobody stated that outputs are written in place: it was taken so, for there is no return."""

    def run(x, w): ...

    start = "run returns nothing, so it is taken to write into its outputs and needs"
    message = refuse(run, destination_passing=True, module=True)
    assert message == f"{start} x, w, y; it takes x, w: add a return, or a parameter y"
    with pytest.raises(BuildError) as caught:
        check_signature(run, INPUTS, ["y", "z"], destination_passing=True, module=True)
    assert str(caught.value) == f"{start} x, w, y, z; it takes x, w: add a return, or parameters y, z"
    named = "run needs x, w, y; got x, w; set destination_passing_style=false to return"
    assert refuse(run, destination_passing=True) == named, "another form of solution states its style"


def test_too_many_required_parameters():
    def run(x, w, y, workspace): ...

    message = refuse(run, destination_passing=True)
    assert message.startswith("run needs x, w, y; got x, w, y, workspace; ")
    assert message.endswith("an output that is written back into an input is not passed again")


def test_no_parameters_at_all():
    def run(): ...

    assert "run needs x, w; got no parameters; " in refuse(run, destination_passing=False)
