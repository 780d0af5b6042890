"""Samplers whose distribution is not known, or not tested: what is judged of them, and that it is said."""

from .repository import RANDOM

PROBS = {"shape": ["n", "h"], "dtype": "float32", "description": "probabilities, each row sums to 1"}
CANDIDATES = {"shape": ["n", "h"], "dtype": "int32", "description": "token ids of the candidates"}
AXES = {"n": {"type": "var"}, "h": {"type": "const", "value": 8}, "vocab": {"type": "const", "value": 32000}}
FOUR = "import torch\n\ndef run(probs):\n    return torch.multinomial(probs, 4).int()\n"
ZERO = "import torch\n\ndef run(probs):\n    return torch.zeros(len(probs), 4, dtype=torch.int32)\n"
RACE = "(probs / torch.empty_like(probs).exponential_()).argmax(-1)[:, None]"
LISTED = "import torch\n\ndef run(probs, candidates):\n    return candidates.gather(1, {place})[:, 0]\n"


def define(repository, name, inputs, reference, shape=("n",)):
    axes = AXES | {"four": {"type": "const", "value": 4}}
    outputs = {"samples": {"shape": list(shape), "dtype": "int32"}}
    within = ["(candidates >= 0).all()", "(candidates < vocab).all()"] if "candidates" in inputs else []
    repository.define(
        name=name,
        op_type="sampling",
        axes=axes,
        inputs=inputs,
        outputs=outputs,
        reference=reference,
        constraints=within,
    )
    line = {"uuid": "w-0008", "axes": {"n": 8}, "inputs": dict.fromkeys(inputs, RANDOM)}
    repository.lines(line, name=name, folder="sampling")


def test_samplers_of_several_tokens_and_of_candidates(repository):
    define(repository, "four", {"probs": PROBS}, FOUR, ("n", "four"))
    both = {"probs": PROBS, "candidates": CANDIDATES}
    define(repository, "raced", both, LISTED.format(place=RACE))
    define(repository, "listed", both, LISTED.format(place="torch.multinomial(probs, 1)"))
    solutions = {"honest": ("four", FOUR), "zero": ("four", ZERO)}
    solutions |= {f"of_{name}": (name, LISTED.format(place=RACE)) for name in ("raced", "listed")}
    for name, (definition, source) in solutions.items():
        repository.solve(name, source, of=definition)
    done = repository.run("-k", "correct and not good")
    failed = {"test_correct[zero-n8-w_0008]"}
    outcomes = done.outcomes("test_")
    assert {name for name, each in outcomes.items() if each != "passed"} == failed, done.output
    assert "is drawn from its row before, and the reference draws without replacement" in done["test_correct[zero"].text
    assert done.output.count("four: samples: drawn without replacement") == 1
    assert done.output.count("raced: samples: its distribution is not known") == 1
    assert "listed: samples:" not in done.output
