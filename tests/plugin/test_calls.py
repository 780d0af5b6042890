"""--fib-calls: latencies weighed by how often a model calls each kernel."""

import json

import pytest


def record(repository, path="calls.json", **counts):
    kernels = [{"id": name, "count": count} for name, count in counts.items()]
    return repository.write(path, json.dumps({"model": "some/model", "framework": "SGLang", "kernels": kernels}))


def test_the_table_at_the_end(repository):
    repository.define(name="other_h8")
    record(repository, scale_add_h8=3, other_h8=2, nowhere=1)
    done = repository.run("-k", "test_speed", "--fib-calls=calls.json")
    assert done.code == 0, done.output
    lines = [line.strip() for line in done.output.splitlines()]
    start = lines.index("some/model, SGLang: 1 of 3 kernels measured")
    assert lines[start + 1].split() == ["kernels", "of", "covers", "time", "speedup"]
    assert [line.split()[0] for line in lines[start + 2 : start + 5]] == ["reference", "tests", "best"]
    assert lines[start + 5].startswith("next: scale_add_h8, 100% of the time that is left")
    assert lines[start + 6 : start + 8] == ["not measured: other_h8", "no definition: nowhere"]


def test_several_records_and_a_folder(repository):
    record(repository, "models/a.json", scale_add_h8=1)
    record(repository, "models/b.json", nowhere=1)
    record(repository, "c.json", nowhere=1)
    done = repository.run("-k", "test_correct", "--fib-calls=models", "--fib-calls=c.json")
    assert done.output.count("some/model, SGLang: 0 of 1 kernels measured") == 3


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"model": "m", "framework": "vllm", "kernels": []}', "did you mean 'vLLM'?"),
        ('{"model": "m", "framework": "vLLM", "kernels": [{"id": "a", "count": -1}]}', "-1 is less than 0"),
        ("{", ": "),
        ('{"machine_info": {}, "benchmarks": []}', "this is a file of pytest-benchmark, not a kernel calling record"),
    ],
)
def test_a_record_with_faults_is_a_usage_error(kernels, repository, content, said):
    repository.write("calls.json", content)
    result = kernels("--fib-calls=calls.json")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: --fib-calls: *calls.json:1*{said}*"])


def test_a_record_that_does_not_exist_is_a_usage_error(kernels):
    assert kernels("--fib-calls=nowhere.json").ret == pytest.ExitCode.USAGE_ERROR
