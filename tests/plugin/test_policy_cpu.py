"""The policy is about kernels that ran on a card; on the CPU nothing is known of them, and no solution is blamed."""

import pytest

TORCH = "import torch\n\ndef run(x, w):\n    return torch.addcmul(torch.ones_like(x), x, w.expand_as(x))\n"


def test_nothing_to_say_on_the_cpu(repository):
    """A solution that leaves all to torch and says that it is Triton is right here, and cannot be called out."""
    repository.solve("good", TORCH, language="triton")
    done = repository.run("-k", "test_speed or test_correct", "--fib-policy=custom-kernel")
    assert done.code == 0, done.output
    assert set(done.outcomes("test_").values()) == {"passed"}
    assert all("kernels" not in case.properties for case in done.cases)
    assert "library kernels" not in done.output


@pytest.mark.parametrize("option", ["--fib-policy=custom-kernel", "--fib-cache=warm"])
def test_what_needs_a_card_is_warned_of(pytester, repository, option):
    """Nobody should take a green run for one that has passed it; an ini file is for runs on cards as well."""
    given = ("--fib-solutions=solutions", "--fib-device=cpu", "-k", "test_schema", "-q")
    result = pytester.runpytest_inprocess(*given, option)
    result.assert_outcomes(passed=1, deselected=4, warnings=1)
    result.stdout.fnmatch_lines([f"*RunWarning: {option}: nothing is judged by it on the CPU, where *"])
    default = option.partition("=")[0] + ("=any" if "policy" in option else "=cold")
    pytester.runpytest_inprocess(*given, default).assert_outcomes(passed=1, deselected=4, warnings=0)
    pytester.makeini("[pytest]\n" + option.removeprefix("--").replace("-", "_", 1))
    pytester.runpytest_inprocess(*given).assert_outcomes(passed=1, deselected=4, warnings=0)
