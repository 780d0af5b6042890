"""`-k` and `-m` select by what people know: definition, kind, tag, solution, author, size."""

import pytest


def definitions(items):
    return {item.partition("::")[0].rpartition("/")[2].removesuffix(".json") for item in items}


@pytest.mark.parametrize(
    "word", ["shift_h8", "other", "status:verified", "model:tiny"], ids=["name", "op_type", "tag", "other_tag"]
)
def test_keyword_of_a_definition(two, collected, word):
    items = collected("-k", word)
    assert definitions(items) == {"shift_h8"}
    assert len(items) == len([item for item in collected() if "shift_h8" in item])


@pytest.mark.parametrize("word", ["fast", "ada", "triton"], ids=["solution", "author", "language"])
def test_keyword_of_a_solution(two, collected, word):
    items = collected("-k", word)
    assert items
    assert all("[fast" in item for item in items)


def test_keyword_of_a_size(two, collected):
    items = collected("-k", "n9")
    assert items
    assert all("n9" in item for item in items)


def test_keywords_combine(two, collected):
    items = collected("-k", "shift_h8 and fast and test_correct and n9")
    assert [item.partition("::")[2] for item in items] == ["test_correct[fast-n9-w_0009]"]


@pytest.mark.skipif(pytest.version_tuple < (8, 3), reason="-m with arguments of marks came with pytest 8.3")
@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("definition(op_type='elementwise')", {"scale_add_h8"}),
        ("definition(name='shift_h8')", {"shift_h8"}),
        ("solution(author='ada')", {"shift_h8"}),
        ("solution(language='python')", {"scale_add_h8"}),
    ],
)
def test_marks(two, collected, expression, expected):
    assert definitions(collected("-m", expression)) == expected
