import os

import pytest

from pytest_flashinfer.data.discover import may_be_solution
from pytest_flashinfer.data.solution_rules import check_solution, unsafe_path
from pytest_flashinfer.data.solutions import load_solution
from pytest_flashinfer.data.write_solution import CannotWriteError, module_text, write_folder
from tests.data import samples

CONFIG = """
[solution]
name = "fast"
definition = "scale_add_h8"
author = "a team"

[build]
language = "Triton"
entry_point = "kernel.py::launch"
destination_passing_style = false
"""
CODE = "def launch(x, w):\n    return x * w + 1\n"
MODULE = '''"""A kernel."""
import triton

definition = "scale_add_h8"
author: str = "someone"
target_hardware = ("NVIDIA_H100",)


def run(x, w):
    return x * w + 1
'''


def load(tmp_path, document):
    return load_solution(samples.write(tmp_path / "s.json", document))


def spec(**changes):
    return samples.changed(samples.GOOD, spec=samples.changed(samples.GOOD["spec"], **changes))


def test_json_solution(tmp_path):
    loaded = load(tmp_path, samples.GOOD)
    solution = loaded.value
    assert (loaded.faults, loaded.notes, check_solution(loaded)) == ((), (), ())
    assert (solution.entry_file, solution.entry_function, solution.language) == ("main.py", "run", "python")
    assert (solution.destination_passing, solution.target_hardware) == (False, ("cpu",))


def test_destination_style_is_the_default(tmp_path):
    assert load(tmp_path, spec(destination_passing_style=...)).value.destination_passing is True


@pytest.mark.parametrize(
    ("language", "read"),
    [("Python", "python"), ("CUDA", "cuda"), ("C++", "cpp"), ("cute_dsl", "cutedsl"), ("torch", "python")],
)
def test_language_in_any_case(tmp_path, language, read):
    loaded = load(tmp_path, spec(language=language))
    assert loaded.value.language == read
    assert loaded.notes == (f"language {language!r} read as {read!r}",)


def test_entry_point_without_a_file(tmp_path):
    assert load(tmp_path, spec(entry_point="run")).value.entry_file == "main.py"
    odd = [{"path": "a]b[c::d.py", "content": "def run(x):\n    return x\n"}]
    found = load(tmp_path, samples.changed(spec(entry_point="a]b[c::d.py::run"), sources=odd)).value
    assert (found.entry_file, found.entry_function) == ("a]b[c::d.py", "run")
    sources = [{"path": "k.py", "content": CODE}]
    assert load(tmp_path, samples.changed(spec(entry_point="launch"), sources=sources)).value.entry_file == "k.py"
    two = [*sources, *samples.GOOD["sources"]]
    loaded = load(tmp_path, samples.changed(spec(entry_point="run"), sources=two))
    assert loaded.value.entry_file == "main.py"
    assert check_solution(loaded) == ()


def test_build_steps_and_other_keys_are_kept(tmp_path):
    sources = [samples.GOOD["sources"][0] | {"mode": 644}]
    assert load(tmp_path, samples.changed(samples.GOOD, sources=sources)).value.sources[0].extra == {"mode": 644}
    loaded = load(tmp_path, samples.changed(spec(build_steps=["make"], compile_options={"cflags": ["-O3"]}), score=3))
    assert loaded.value.extra == {"score": 3, "spec": {"build_steps": ["make"], "compile_options": {"cflags": ["-O3"]}}}


def test_digest_is_of_what_is_executed(tmp_path):
    digest = load(tmp_path, samples.GOOD).value.digest
    assert load(tmp_path, samples.changed(samples.GOOD, name="other", author="x")).value.digest == digest
    assert load(tmp_path, spec(destination_passing_style=True)).value.digest != digest


RULES = {
    "language": (spec(language="pythn"), "spec.language", "did you mean 'python'?"),
    "no entry point": (spec(entry_point=...), "spec", "missing key 'entry_point': '<file>::<function>'"),
    "empty function": (spec(entry_point="main.py:: "), "spec.entry_point", "names no function"),
    "one colon": (
        spec(entry_point="main.py:run"),
        "spec.entry_point",
        "'main.py:run' has one colon: write main.py::run",
    ),
    "entry file": (
        spec(entry_point="mian.py::run"),
        "spec.entry_point",
        "'mian.py' is not among the sources; did you mean 'main.py'?",
    ),
    "entry function": (
        spec(entry_point="main.py::rum"),
        "spec.entry_point",
        "no top-level function 'rum'; did you mean 'run'?",
    ),
    "binding": (samples.changed(spec(language="cuda", binding="pybind")), "spec.binding", "is not allowed here"),
    "hardware": (spec(target_hardware=[3]), "spec.target_hardware[0]", "expected a string, got 3"),
    "no sources": (samples.changed(samples.GOOD, sources=[]), "sources", "is empty"),
    "no content": (samples.changed(samples.GOOD, sources=[{"path": "main.py"}]), "sources[0]", "missing key 'content'"),
    "syntax": (
        samples.changed(samples.GOOD, sources=[{"path": "main.py", "content": "def run(:\n"}]),
        "sources[0].content",
        "main.py:1: invalid syntax",
    ),
    "twice": (
        samples.changed(samples.GOOD, sources=samples.GOOD["sources"] * 2),
        "sources[0].path",
        "stands here twice",
    ),
    "leaves": (
        samples.changed(samples.GOOD, sources=[*samples.GOOD["sources"], {"path": "a/../../b.py", "content": ""}]),
        "sources[1].path",
        "leaves the solution's folder",
    ),
    "no author": (samples.changed(samples.GOOD, author=...), "", "missing key 'author'"),
    "slash in name": (samples.changed(samples.GOOD, name="a/b"), "name", "holds a slash: no name may"),
    "lines in name": (samples.changed(samples.GOOD, name="a\nb/"), "name", "holds a line break and a slash: no name"),
}


@pytest.mark.parametrize("name", RULES)
def test_rules(tmp_path, name):
    document, where, message = RULES[name]
    found = [fault for fault in check_solution(load(tmp_path, document)) if fault.where == where]
    assert found
    assert message in found[0].message
    assert found[0].line >= 1


def test_a_path_that_is_refused_is_not_proposed(tmp_path):
    document = samples.changed(samples.GOOD, sources=[{"path": "../main.py", "content": ""}])
    said = [fault.message for fault in check_solution(load(tmp_path, document)) if fault.where == "spec.entry_point"]
    assert said == ["entry file 'main.py' is not among the sources"]


@pytest.mark.parametrize(
    "path",
    [
        "/etc/x.py",
        "../x.py",
        "a/../../x.py",
        "a/../b.py",
        "C:/x.py",
        "C:x.py",
        "..",
        ".",
        "a/",
        "~/x.py",
        "a\\..\\x.py",
        "a\0.py",
        "a\nb.py",
        "//x/y.py",
    ],
)
def test_source_paths_that_are_refused(path):
    assert unsafe_path(path)


@pytest.mark.parametrize("path", ["x.py", "a/b/c.cu", "./x.py", "a..b.py", "...py"])
def test_source_paths_that_are_fine(path):
    assert unsafe_path(path) is None


def test_entry_of_compiled_languages_is_not_looked_for(tmp_path):
    sources = [{"path": "k.cu", "content": "void launch() {}"}]
    document = samples.changed(spec(language="cuda", entry_point="k.cu::launch", binding="torch"), sources=sources)
    assert check_solution(load(tmp_path, document)) == ()


@pytest.mark.parametrize("place", ["solution/triton", "solution", "."])
def test_folder_with_a_config(tmp_path, place):
    samples.write(tmp_path / "config.toml", CONFIG)
    samples.write(tmp_path / place / "kernel.py", CODE)
    samples.write(tmp_path / place / "lib" / "helper.py", "x = 1\n")
    for path in (tmp_path, tmp_path / "config.toml"):
        loaded = load_solution(path)
        assert check_solution(loaded) == ()
        assert (loaded.value.name, loaded.value.language, loaded.value.entry_function) == ("fast", "triton", "launch")
        assert [source.path for source in loaded.value.sources] == ["kernel.py", "lib/helper.py"]
        assert loaded.value.destination_passing is False


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[solution\n", "config.toml:1:10: not TOML"),
        ("", "missing table [solution]"),
        ('[solution]\nname = "a"\n', "missing table [build]"),
        (CONFIG.replace('definition = "scale_add_h8"\n', ""), "missing key 'definition'"),
        (CONFIG.replace('"fast"', "3"), "expected a string, got 3"),
        ("[solution]\nname = a-b  # mine\n", 'toml:2:8: not TOML: Invalid value: put text in quotes: name = "a-b"'),
        ("[solution]\nname = =\n", "config.toml:2:8: not TOML: Invalid value"),
        (CONFIG.replace("[build]", "[bild]"), ": missing table [build]; there is [bild]: rename it"),
        (CONFIG.replace("[solution]", "[ soluton ]"), "config.toml:2: missing table [solution]; there is [soluton]"),
    ],
)
def test_configs_that_are_wrong(tmp_path, text, message):
    samples.write(tmp_path / "config.toml", text)
    loaded = load_solution(tmp_path)
    assert loaded.value is None
    assert any(message in str(fault) for fault in loaded.faults)


@pytest.mark.parametrize("place", ["", "solution"])
def test_a_folder_without_sources_is_told_where_they_belong(tmp_path, place):
    samples.write(tmp_path / "config.toml", CONFIG)
    samples.write(tmp_path / "README", "words")
    (tmp_path / place).mkdir(exist_ok=True)
    said = "there are no source files: put kernel.py beside config.toml, or into solution/triton/"
    assert [fault.message for fault in check_solution(load_solution(tmp_path))] == [said]
    samples.write(tmp_path / "config.toml", CONFIG.replace('definition = "scale_add_h8"\n', ""))
    assert [fault.message.partition(":")[0] for fault in check_solution(load_solution(tmp_path))] == [
        "there are no source files",
        "missing key 'definition'",
    ]


def test_folder_defaults_and_what_is_left_out(tmp_path):
    root = tmp_path / "mine"
    samples.write(
        root / "config.toml",
        CONFIG.replace('name = "fast"\n', "made = 2026-01-01\n").replace('author = "a team"\n', ""),
    )
    samples.write(root / "kernel.py", CODE)
    samples.write(root / "README.md", "words")
    samples.write(root / ".git" / "hook.py", "x")
    (root / "link.py").symlink_to("/etc/hosts")
    solution = load_solution(root).value
    assert (solution.name, solution.author, solution.extra) == ("mine", "unknown", {"made": "2026-01-01"})
    assert [source.path for source in solution.sources] == ["kernel.py"]


def test_source_that_cannot_be_read_is_a_fault(tmp_path):
    samples.write(tmp_path / "config.toml", CONFIG)
    samples.write(tmp_path / "kernel.py", CODE)
    (tmp_path / "other.cu").write_bytes(b"\xff\xfe\xff")
    os.mkfifo(tmp_path / "pipe.py")
    assert ["other.cu" in str(fault) for fault in load_solution(tmp_path).faults] == [True]


def test_python_module(tmp_path):
    path = samples.write(tmp_path / "mine.py", MODULE)
    loaded = load_solution(path)
    solution = loaded.value
    assert check_solution(loaded) == ()
    assert (solution.name, solution.definition, solution.author) == ("mine", "scale_add_h8", "someone")
    assert (solution.language, solution.entry_file, solution.entry_function) == ("triton", "mine.py", "run")
    assert solution.target_hardware == ("NVIDIA_H100",)
    assert solution.destination_passing is False


def test_python_module_in_destination_style(tmp_path):
    path = samples.write(tmp_path / "mine.py", 'definition = "d"\ndef run(x, y):\n    y.copy_(x)\n')
    loaded = load_solution(path)
    assert loaded.value.destination_passing is True
    assert loaded.value.language == "python"
    assert "writes its outputs in place" in loaded.notes[0]


@pytest.mark.parametrize("body", ["raise NotImplementedError", "yield x", "print(x)\n    raise ValueError(x)"])
def test_what_never_ends_by_itself_is_no_destination_style(tmp_path, body):
    path = samples.write(tmp_path / "mine.py", f'definition = "d"\ndef run(x):\n    {body}\n')
    assert load_solution(path).value.destination_passing is False


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def run(x): pass\n", 'no module-level definition = "<name>"'),
        ("x = 1\ndefinition = 3\n", "mine.py:2: definition must be one plain string, the name"),
        ('"""Mine."""\ndefinition = ["a", "b"]\n', "mine.py:2: definition must be one plain string"),
        ('n = 8\ndefinition: str = f"a_h{n}"\n', "mine.py:2: definition must be one plain string"),
        ("definition = NAMES[0]\n", "mine.py:1: definition must be one plain string"),
        ('definition = "d"\ndef run(:\n', "mine.py:2: not Python"),
        ("definition = '\0'", "not Python"),
    ],
)
def test_python_modules_that_are_wrong(tmp_path, text, message):
    loaded = load_solution(samples.write(tmp_path / "mine.py", text))
    assert loaded.value is None
    assert message in str(loaded.faults[0])


@pytest.mark.parametrize("place", ["kit/main.py", "kit/solution/triton/main.py"])
def test_a_source_of_a_folder_is_told_to_be_one(tmp_path, place):
    samples.write(tmp_path / "kit" / "config.toml", "[solution]\n")
    path = samples.write(tmp_path / place, "def run(x):\n    return x\n")
    assert f"as a source of the solution in {tmp_path / 'kit'} has none: give that folder" in str(
        load_solution(path).faults[0]
    )


@pytest.mark.parametrize("wrong", ["author: int = 5", "author = 5", "author = x = 5", 'language = "fortran"'])
def test_faults_of_a_module_are_at_the_lines_of_its_own_level(tmp_path, wrong):
    """Not at those of a function's variables or of a docstring that look alike."""
    head = '"""\nauthor = me\nlanguage = "x"\n"""\n\n\ndef run(x):\n    author = language = "x"\n    return x\n\n\n'
    path = samples.write(tmp_path / "mine.py", f'{head}definition = "d"\n{wrong}\n')
    assert {fault.line for fault in check_solution(load_solution(path))} == {13}


@pytest.mark.parametrize("name", ["definition", "defintion"])
def test_words_in_a_docstring_make_no_solution(tmp_path, name):
    text = f'"""Help.\n\n{name} = "scale"\n"""\n\n\ndef run(x):\n    return x\n'
    assert not may_be_solution(samples.write(tmp_path / "help.py", text))
    assert may_be_solution(samples.write(tmp_path / "broken.py", f"{text}\n("))
    slip = samples.write(tmp_path / "slip.py", f'{text}\n{name} = "scale"\n')
    assert may_be_solution(slip)
    assert {fault.line for fault in load_solution(slip).faults} == ({10} if name == "defintion" else set())


def test_module_without_run(tmp_path):
    """It has no entry point to name another function in, and is not told of one."""
    loaded = load_solution(samples.write(tmp_path / "mine.py", 'definition = "d"\ndef go(x): ...\n'))
    wanted = "mine.py has no top-level function 'run' (there is: go); name the one that solves it run"
    assert [(fault.line, fault.where, fault.message) for fault in check_solution(loaded)] == [(1, "", wanted)]


def test_reading_a_module_runs_nothing(tmp_path):
    marker = tmp_path / "ran"
    samples.write(tmp_path / "mine.py", f'definition = "d"\nopen({str(marker)!r}, "w")\ndef run(x):\n    return x\n')
    assert load_solution(tmp_path / "mine.py").value is not None
    assert not marker.exists()


def test_other_json_beside_solutions_is_only_a_warning(tmp_path):
    loaded = load(tmp_path, samples.BASE)
    assert (loaded.value, loaded.faults) == (None, ())
    assert "this is a definition, not a solution" in loaded.warnings[0].message


def test_folder_and_back(tmp_path):
    document = samples.changed(
        spec(build_steps=["make -j"], options={"a b": [1, 2.5, True], "q": 'x"\\\n\x7f'}), note="é"
    )
    solution = load(tmp_path, document).value
    written = write_folder(solution, tmp_path / "out")
    assert {path.name for path in written} == {"config.toml", "main.py"}
    assert load_solution(tmp_path / "out").value == solution


def test_module_and_back(tmp_path):
    solution = load(tmp_path, samples.changed(samples.GOOD, description='says "so"')).value
    path = samples.write(tmp_path / "out" / "main.py", module_text(solution))
    back = load_solution(path).value
    assert (back.name, back.definition, back.author, back.description) == (
        solution.name, solution.definition, solution.author, solution.description,
    )  # fmt: skip
    assert (back.language, back.destination_passing, back.target_hardware) == ("python", False, ("cpu",))
    assert module_text(back) == path.read_text()


def test_what_has_no_such_form(tmp_path):
    evil = samples.changed(samples.GOOD, sources=[{"path": "../../evil.py", "content": "x"}])
    with pytest.raises(CannotWriteError, match="leaves the solution's folder"):
        write_folder(load(tmp_path, evil).value, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    more = samples.changed(samples.GOOD, sources=[samples.GOOD["sources"][0] | {"mode": 644}])
    with pytest.raises(CannotWriteError, match="a file cannot hold 'mode'"):
        write_folder(load(tmp_path, more).value, tmp_path / "out")
    with pytest.raises(CannotWriteError, match="null has no form"):
        write_folder(load(tmp_path, spec(build_steps=[None])).value, tmp_path / "out")
    with pytest.raises(CannotWriteError, match="one Python source"):
        module_text(load(tmp_path, samples.changed(samples.GOOD, sources=samples.GOOD["sources"] * 2)).value)
    with pytest.raises(CannotWriteError, match="a module's entry is 'run'"):
        module_text(load(tmp_path, spec(entry_point="main.py::go")).value)


def test_faults_of_a_folder_are_at_the_lines_of_its_config(tmp_path):
    head = '[solution]\ndefinition = ""\n\n[build]\n'
    (tmp_path / "config.toml").write_text(head + 'language = "pythn"\n  entry_point = "main.py:run"\n')
    (tmp_path / "main.py").write_text(CODE)
    found = {fault.where: fault.line for fault in check_solution(load_solution(tmp_path))}
    assert found == {"solution.definition": 2, "build.language": 5, "build.entry_point": 6}


@pytest.mark.parametrize(("line", "style"), [("", False), ("destination_passing_style = True", True)])
def test_a_module_says_how_it_is_called_where_its_source_does_not_show_it(tmp_path, line, style):
    (tmp_path / "k.py").write_text(f'definition = "d"\n{line}\n\nrun = [print].pop()\n')
    assert load_solution(tmp_path / "k.py").value.destination_passing is style
