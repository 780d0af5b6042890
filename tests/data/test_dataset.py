import json
import subprocess
import sys
import time

import pytest

from pytest_flashinfer.data import workload_files
from pytest_flashinfer.data.dataset import DataSet
from pytest_flashinfer.data.definitions import load_definition
from pytest_flashinfer.data.entry_rules import check_entry
from pytest_flashinfer.data.solutions import load_solution
from tests.data import samples


def data_set(root):
    return DataSet([root / "definitions"], [root / "solutions"], [root / "workloads"])


@pytest.fixture
def root(tmp_path):
    """A data set of one definition with two workloads and one solution."""
    samples.write(tmp_path / "definitions" / "elementwise" / "scale_add_h8.json", samples.BASE)
    samples.write_lines(
        tmp_path / "workloads" / "elementwise" / "scale_add_h8.jsonl",
        samples.LINE,
        samples.workload_line(uuid="w-0002"),
    )
    samples.write(tmp_path / "solutions" / "me" / "elementwise" / "scale_add_h8" / "good.json", samples.GOOD)
    return tmp_path


BASE_FILE = "definitions/elementwise/scale_add_h8.json"


def test_a_sound_data_set(root):
    data = data_set(root)
    assert data.definition_files() == [root / BASE_FILE]
    assert data.problems(root / BASE_FILE) == ()
    assert [line.value.uuid for line in data.workloads(root / BASE_FILE)] == ["w-0001", "w-0002"]
    assert [loaded.value.name for loaded in data.solutions_for("scale_add_h8")] == ["scale_add_good"]
    assert data.unknown_solutions() == ()


BROKEN = json.dumps(samples.changed(samples.BASE, name="bad_h8"), indent=2)[:-2] + ",\n}"


@pytest.mark.parametrize(
    ("text", "message"),
    [(BROKEN, ":37:56: not JSON: trailing comma: remove the ','"), ("", ":1: empty file: write a JSON")],
)
def test_case_01_a_broken_definition_leaves_the_others(root, text, message):
    path = samples.write(root / "definitions" / "elementwise" / "bad_h8.json", text)
    data = data_set(root)
    assert data.definition_files() == [path, root / BASE_FILE]
    (fault,) = data.problems(path)
    assert str(fault).startswith(f"{path}{message}")
    assert data.problems(root / BASE_FILE) == ()


def test_case_01_byte_order_mark(root):
    path = root / "definitions" / "elementwise" / "bom.json"
    text = json.dumps(samples.changed(samples.BASE, name="bom"))
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    data = data_set(root)
    assert data.problems(path) == ()
    assert "byte-order mark" in data.load(path).notes[0]


def test_case_02a_one_name_in_two_files(root):
    other = samples.write(
        root / "definitions" / "norm" / "scale_add_h8.json", samples.changed(samples.BASE, op_type="norm")
    )
    data = data_set(root)
    assert data.is_ambiguous("scale_add_h8")
    assert not data.is_ambiguous("other")
    for path, its_other in ((root / BASE_FILE, other), (other, root / BASE_FILE)):
        faults = samples.messages(data.problems(path))
        assert len(faults) == 1
        assert str(path) in faults[0]
        assert str(its_other) in faults[0]


def test_case_02d_folder_of_another_type_is_a_warning(root):
    path = samples.write(
        root / "definitions" / "elementwise" / "n.json", samples.changed(samples.BASE, op_type="norm", name="n")
    )
    (warning,) = data_set(root).problems(path)
    assert warning.kind == "warning"


def test_solutions_for_unknown_definitions_name_the_nearest(root):
    samples.write(root / "solutions" / "lost.json", samples.changed(samples.GOOD, definition="scale_add_h9"))
    samples.write(root / "solutions" / "far.json", samples.changed(samples.GOOD, definition="conv"))
    near, far = sorted(data_set(root).unknown_solutions(), key=str, reverse=True)
    assert near.kind == "warning"
    assert near.message == "unknown definition 'scale_add_h9'; did you mean 'scale_add_h8'?"
    assert far.message == "unknown definition 'conv'; there is none of a similar name"


def test_solutions_for_a_broken_definition_are_told_so(root):
    path = samples.write(root / "definitions" / "bad_h8.json", "{")
    samples.write(root / "solutions" / "lost.json", samples.changed(samples.GOOD, definition="bad_h8"))
    (warning,) = data_set(root).unknown_solutions()
    assert warning.message.startswith(f"unknown definition 'bad_h8', whose file is broken: {path}:1:1: not JSON: ")


def test_a_broken_solution_is_told_with_the_definition_of_its_folder(root):
    samples.write(root / "solutions" / "me" / "elementwise" / "scale_add_h8" / "broken.json", '{"name": "x",}')
    samples.write(root / "solutions" / "elsewhere.json", "{")
    data = data_set(root)
    assert ["broken.json:1:13" in text for text in samples.messages(data.problems(root / BASE_FILE))] == [True]
    assert ["elsewhere.json:1" in str(fault) for fault in data.unknown_solutions()] == [True]


def test_solutions_of_one_name(root):
    samples.write(root / "solutions" / "you" / "good.json", samples.GOOD)
    (fault,) = data_set(root).problems(root / BASE_FILE)
    assert "name 'scale_add_good' is also that of" in fault.message


def test_solutions_in_all_their_forms(root):
    kit = root / "solutions" / "kit"
    samples.write(
        kit / "config.toml",
        '[solution]\nname="kit"\ndefinition="scale_add_h8"\nauthor="a"\n[build]\nlanguage="python"\nentry_point="k.py::run"\n',
    )
    samples.write(kit / "solution" / "python" / "k.py", 'definition = "scale_add_h8"\ndef run(x, w, y): pass\n')
    samples.write(kit / "solution" / "python" / "data.json", "{}")
    samples.write(root / "solutions" / "mine.py", 'definition = "scale_add_h8"\ndef run(x, w):\n    return x\n')
    samples.write(root / "solutions" / "conftest.py", "import this_is_not_a_solution\n")
    samples.write(root / "solutions" / "notes.json", [1, 2])
    samples.write(root / "solutions" / "scale_add_good.trace.json", {"model": "m", "conversation": []})
    samples.write(root / "solutions" / ".hidden" / "x.json", samples.GOOD)
    data = data_set(root)
    assert [loaded.value.name for loaded in data.solutions_for("scale_add_h8")] == ["kit", "mine", "scale_add_good"]
    assert data.unknown_solutions() == ()


def test_single_files_may_be_given(root):
    solution = samples.write(root / "one.json", samples.changed(samples.GOOD, name="one"))
    lines = samples.write_lines(
        root / "all.jsonl", samples.LINE, samples.changed(samples.LINE, definition="other"), "broken"
    )
    data = DataSet([root / BASE_FILE], [solution], [lines])
    assert data.definition_files() == [root / BASE_FILE]
    assert [line.value.uuid for line in data.workloads(root / BASE_FILE)] == ["w-0001"]
    assert [loaded.value.name for loaded in data.solutions_for("scale_add_h8")] == ["one"]


def test_workloads_in_the_folder_of_the_op_type_come_first(root):
    samples.write_lines(root / "workloads" / "other" / "scale_add_h8.jsonl", samples.workload_line(uuid="elsewhere"))
    assert [line.value.uuid for line in data_set(root).workloads(root / BASE_FILE)] == ["w-0001", "w-0002"]
    (root / "workloads" / "elementwise" / "scale_add_h8.jsonl").unlink()
    assert [line.value.uuid for line in data_set(root).workloads(root / BASE_FILE)] == ["elsewhere"]


def test_workloads_beside_a_sol_problem(tmp_path):
    path = samples.write(tmp_path / "problem" / "definition.json", samples.SOL)
    inputs = {"x": {"type": "custom"}, "p": {"type": "custom"}}
    samples.write(tmp_path / "problem" / "solution.json", samples.GOOD)
    samples.write_lines(tmp_path / "problem" / "workload.jsonl", {"uuid": "u", "axes": {"t": 3}, "inputs": inputs})
    data = DataSet([tmp_path], [], [])
    assert data.definition_files() == [path]
    assert [line.value.axes for line in data.workloads(path)] == [{"t": 3}]
    assert samples.messages(data.problems(path)) == []


def test_a_file_of_many_definitions_is_read_once(root, monkeypatch):
    """A data set may have hundreds of definitions, and of files that were named one by one."""
    names = ["scale_add_h8", "other_h8", "third_h8"]
    for name in names[1:]:
        samples.write(root / f"definitions/elementwise/{name}.json", samples.changed(samples.BASE, name=name))
    lines = [json.loads(json.dumps(samples.LINE).replace("scale_add_h8", name)) for name in (*names, names[1])]
    path = samples.write_lines(root / "all.jsonl", *lines, {**samples.LINE, "definition": ["no name"]})
    read, load = [], workload_files.load_workloads
    monkeypatch.setattr(workload_files, "load_workloads", lambda *given: read.append(given) or load(*given))
    data = DataSet([root / "definitions"], [], [path])
    found = {name: len(data.workloads(root / f"definitions/elementwise/{name}.json")) for name in names}
    assert found == {"scale_add_h8": 1, "other_h8": 2, "third_h8": 1}
    assert read == [(path,)]


def test_root_of_the_data_set(root):
    data = data_set(root)
    lines = root / "workloads" / "elementwise" / "scale_add_h8.jsonl"
    assert data.workload_files.root_of(lines) == root
    assert DataSet([], [], [lines]).workload_files.root_of(lines) == lines.parent
    (root / "blob").mkdir()
    assert DataSet([], [], [lines]).workload_files.root_of(lines) == root
    assert DataSet([], [], [root]).workload_files.root_of(lines) == root


def test_all_faults_of_a_definition_at_once(root):
    samples.write(root / BASE_FILE, samples.changed(samples.BASE, constraints=["n =="]))
    samples.write_lines(root / "workloads" / "elementwise" / "scale_add_h8.jsonl", samples.LINE, samples.LINE, "{")
    samples.write(root / "solutions" / "s.json", samples.changed(samples.GOOD, name="s", sources=[]))
    places = [(fault.path.name, fault.line) for fault in data_set(root).problems(root / BASE_FILE)]
    assert places[0] == ("scale_add_h8.json", 39)
    assert ("s.json", 14) in places
    assert places[-2:] == [("scale_add_h8.jsonl", 2), ("scale_add_h8.jsonl", 3)]


def test_a_large_data_set_is_indexed_quickly(tmp_path):
    line = json.dumps(samples.LINE)
    for number in range(200):
        name = f"d{number:03}"
        samples.write(
            tmp_path / "definitions" / "op" / f"{name}.json", samples.changed(samples.BASE, name=name, op_type="op")
        )
        samples.write(tmp_path / "workloads" / "op" / f"{name}.jsonl", (line + "\n").replace("scale_add_h8", name) * 30)
        for copy in range(3):
            document = samples.changed(samples.GOOD, name=f"s{copy}", definition=name)
            samples.write(tmp_path / "solutions" / name / f"s{copy}.json", document)
    start = time.process_time()
    data = data_set(tmp_path)
    assert len(data.definition_files()) == 200
    assert len(data.names) == 200
    assert len(data.solutions_for("d100")) == 3
    assert len(data.workloads(tmp_path / "definitions" / "op" / "d100.json")) == 30
    assert time.process_time() - start < 1


def test_this_floor_loads_nothing_heavy():
    code = "import sys, pytest_flashinfer.data.dataset, pytest_flashinfer.data.write_solution; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "triton", "hypothesis", "jsonschema", "numpy", "pytest", "_pytest"} & set(loaded)
    assert "pytest_flashinfer.data.dataset" in loaded


def entry(source, *, destination=False, language="python", path="main.py", **changes):
    """A solution of scale_add_h8 whose entry is `source`."""
    spec = samples.GOOD["spec"] | {"language": language, "destination_passing_style": destination} | changes
    return samples.changed(samples.GOOD, spec=spec, sources=[{"path": path, "content": source}])


def told_of(tmp_path, name, document):
    """What is wrong with a definition of scale_add_h8 and one solution."""
    definition = samples.write(tmp_path / "definitions/scale_add_h8.json", samples.BASE)
    solution = samples.write(tmp_path / "solutions" / name, document)
    return [
        str(each).replace(f"{solution}", name) for each in DataSet([definition], [solution], []).problems(definition)
    ]


@pytest.mark.parametrize(
    ("source", "destination", "said"),
    [
        ("def run(x):\n    return x\n", False, "x; it is given x, w, by position"),
        (
            "def run(x, w, y):\n    y.copy_(x)\n",
            False,
            "x, w, y; it is given x, w: set destination_passing_style to true",
        ),
        ("def run(x, w):\n    return x\n", True, "x, w; it is given x, w, y: set destination_passing_style to false"),
        ("def run(x, w, *, eps):\n    return x\n", False, "eps by keyword only: arguments are given by position"),
        ("def run():\n    return 1\n", False, "nothing; it is given x, w"),
    ],
)
def test_parameters_that_do_not_fit_are_told_before_anything_is_built(tmp_path, source, destination, said):
    [text] = told_of(tmp_path, "solution.json", entry(source, destination=destination))
    assert ": spec.entry_point: main.py:1: run takes " in text
    assert said in text


@pytest.mark.parametrize(
    "source",
    [
        "def run(x, w):\n    return x\n",
        "def run(a, b, eps=1e-6):\n    return a\n",
        "def run(*args):\n    return args\n",
        "def run(x, *rest, **more):\n    return x\n",
        "import functools\n\n\n@functools.wraps(print)\ndef run(x):\n    return x\n",
        "def run(x):\n    return x\n\n\nrun = print\n",
        "def run():\n    pass\n\n\ndef other():\n    global run\n    run = print\n",
        "def run():\n    pass\n\n\nglobals()['run'] = print\n",
        "import sys\n\n\ndef run():\n    pass\n\n\nsetattr(sys.modules[__name__], 'run', print)\n",
        "import sys\n\n\ndef run():\n    pass\n\n\nsys.modules[__name__].run = print\n",
        "def run():\n    pass\n\n\nexec('def run(x, w): return x')\n",
        "def run():\n    pass\n\n\nrun.__code__ = print\n",
        "def run(x):\n    return x\n\n\nfrom helper import *\n",
        "if True:\n\n    def run(x, w):\n        return x\n",
        "class run:\n    pass\n",
    ],
)
def test_what_may_fit_is_let_pass(tmp_path, source):
    assert told_of(tmp_path, "solution.json", entry(source)) == []


@pytest.mark.parametrize(
    ("parameters", "destination", "said"),
    [
        ("w, x", False, "run takes w, x; the definition's order is x, w, by position: is that meant?"),
        ("y, x, w", True, "run takes y, x, w; the definition's order is x, w, y, by position: is that meant?"),
        ("a, x", False, "run takes a, x; the definition's order is x, w, by position: is that meant?"),
        ("x, w, y=None", False, None),
        ("a, b, c", True, None),
        ("x, *rest", True, None),
    ],
)
def test_names_of_parameters_in_another_order_are_warned_of(tmp_path, parameters, destination, said):
    source = f"def run({parameters}):\n    return 1\n"
    path = samples.write(tmp_path / "mine.json", entry(source, destination=destination))
    definition = load_definition(samples.write(tmp_path / "scale_add_h8.json", samples.BASE)).value
    found = [(fault.kind, fault.message) for fault in check_entry(load_solution(path), definition)]
    assert found == ([] if said is None else [("warning", f"main.py:1: {said}")])


def test_a_module_is_told_at_the_line_of_its_function(tmp_path):
    head = 'definition = "scale_add_h8"\n\n\n'
    [text] = told_of(tmp_path, "mine.py", f"{head}def run(x):\n    return x\n")
    assert text == "mine.py:4: run takes x; it is given x, w, by position"
    [text] = told_of(tmp_path, "mine.py", f"{head}def run(x, w):\n    x * w\n")
    assert text.endswith(
        "it is given x, w, y: return the outputs (or set destination_passing_style = False), or take y as well"
    )


def test_an_output_that_is_written_into_an_input_is_not_given_again(tmp_path):
    base = samples.changed(samples.BASE, outputs={"y": {**samples.BASE["outputs"]["y"], "param": "x"}})
    definition = samples.write(tmp_path / "definitions/scale_add_h8.json", base)
    good = samples.write(tmp_path / "good.json", entry("def run(x, w):\n    x.mul_(w)\n", destination=True))
    assert DataSet([definition], [good], []).problems(definition) == ()


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("import torch\n", 1),
        ("from torch.utils import cpp_extension\n", 0),
        ("import cutlass.cute as cute\n", 0),
        ("from cutlass import cute\n", 0),
        ("from numba import cuda\n", 0),
    ],
)
def test_a_language_that_no_source_is_written_in_is_warned_of(tmp_path, source, count):
    told = told_of(tmp_path, "solution.json", entry(f"{source}\n\ndef run(x, w):\n    return x\n", language="cuda"))
    assert [": spec.language: language is 'cuda', and nothing in the sources" in text for text in told] == [
        True
    ] * count
