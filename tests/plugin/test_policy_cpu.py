"""The policy is about kernels that ran on a card; on the CPU nothing is known of them and nothing is said."""

import pytest

TORCH = "import torch\n\ndef run(x, w):\n    return torch.addcmul(torch.ones_like(x), x, w.expand_as(x))\n"


@pytest.mark.parametrize("policy", ["any", "custom-kernel"])
def test_nothing_to_say_on_the_cpu(repository, policy):
    """A solution that leaves all to torch and says that it is Triton is right here, and cannot be called out."""
    repository.solve("good", TORCH, language="triton")
    options = ("-k", "test_speed or test_correct", "-W", "error::pytest.PytestWarning")
    done = repository.run(*options, f"--fib-policy={policy}")
    assert done.code == 0, done.output
    assert set(done.outcomes("test_").values()) == {"passed"}
    assert all("kernels" not in case.properties for case in done.cases)
    assert "library kernels" not in done.output
