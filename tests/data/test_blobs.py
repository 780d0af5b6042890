"""CASE 12: safetensors files that are not there, not what they say, or not safetensors."""

import json
import math
import os
import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_flashinfer.data import blobs
from pytest_flashinfer.data.definitions import load_definition
from pytest_flashinfer.data.traces import load_workloads
from pytest_flashinfer.data.workload_rules import check_workload
from tests.data import samples

FOLDER = "blob/workloads/elementwise/scale_add_h8"
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"


def stored(dtype="F32", shape=(4, 8), key="x", size=None):
    """The bytes of a safetensors file with one tensor."""
    bits = blobs._DTYPES[dtype][1]
    count = math.prod(shape) * bits // 8
    header = json.dumps(
        {"__metadata__": {"a": "b"}, key: {"dtype": dtype, "shape": list(shape), "data_offsets": [0, count]}}
    ).encode()
    return struct.pack("<Q", len(header)) + header + b"\0" * (count if size is None else size)


@pytest.fixture
def check(tmp_path):
    """Put bytes at a place and check a workload that takes `x` from a path."""
    definition = load_definition(samples.write(tmp_path / "definitions" / "a.json", samples.BASE)).value

    def run(data, place=f"{FOLDER}/a.safetensors", path=f"./{FOLDER}/a.safetensors", key="x"):
        if data is not None:
            (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / place).write_bytes(data)
        inputs = {"x": {"type": "safetensors", "path": path, "tensor_key": key}, "w": {"type": "random"}}
        lines = samples.write_lines(tmp_path / "w.jsonl", samples.workload_line(inputs=inputs))
        return check_workload(load_workloads(lines, "scale_add_h8")[0], definition, tmp_path)

    return run


@pytest.mark.parametrize(
    "path", [f"./{FOLDER}/a.safetensors", f"{FOLDER}/a.safetensors", f"././blob/../{FOLDER}/a.safetensors"]
)
def test_a_good_file(check, path):
    assert check(stored(), path=path) == ()


def test_case_12a_git_lfs_pointer_is_a_skip(check):
    (fault,) = check(POINTER)
    assert fault.kind == "skip"
    assert fault.message == f'Git LFS pointer; run git lfs pull --include "{FOLDER}/a.safetensors"'


def headed(text):
    """The bytes of a file with a header as given, and 64 bytes of data."""
    return struct.pack("<Q", len(text)) + text.encode() + b"\0" * 64


def described(**tensors):
    return headed(json.dumps({name: {"dtype": "F32", "shape": [8], **more} for name, more in tensors.items()}))


FAULTS = {
    "overlap": (
        {},
        described(x={"data_offsets": [0, 32]}, y={"data_offsets": [28, 60]}),
        "a.safetensors: damaged: tensors 'x' and 'y' overlap",
    ),
    "beyond the end": ({}, described(x={"data_offsets": [40, 72]}), "truncated or damaged"),
    "backwards": ({}, described(x={"data_offsets": [32, 0]}), "truncated or damaged"),
    "negative": ({}, described(x={"data_offsets": [-32, 0]}), "tensor 'x' is not described as one"),
    "negative shape": ({}, described(x={"shape": [-8], "data_offsets": [0, 32]}), "is not described as one"),
    "many axes": ({}, described(x={"shape": [1] * 65, "data_offsets": [0, 4]}), "is not described as one"),
    "huge shape": ({}, described(x={"shape": [10**90] * 60, "data_offsets": [0, 4]}), "truncated or damaged"),
    "a text as shape": ({}, described(x={"shape": "88", "data_offsets": [0, 32]}), "is not described as one"),
    "true as size": ({}, described(x={"shape": [True], "data_offsets": [0, 4]}), "is not described as one"),
    "three offsets": ({}, described(x={"data_offsets": [0, 32, 64]}), "is not described as one"),
    "unknown dtype": ({}, described(x={"dtype": "Q9", "data_offsets": [0, 32]}), "is not described as one"),
    "a list as dtype": ({}, described(x={"dtype": ["F32"], "data_offsets": [0, 32]}), "is not described as one"),
    "a list as tensor": ({}, headed('{"x": []}'), "is not described as one"),
    "NaN": ({}, headed('{"x": NaN}'), "not a safetensors file: NaN is not JSON"),
    "repeated": ({}, headed('{"x": {}, "x": {}}'), "key 'x' stands here a second time"),
    "not UTF-8": ({}, struct.pack("<Q", 4) + b'"\xff\xfe"', "not a safetensors file: its header is not JSON"),
    "deep": ({}, headed('{"x": ' + "[" * 5000 + "]" * 5000 + "}"), "nested deeper than"),
    "many": ({}, headed("{" + ",".join(f'"{n}":{{}}' for n in range(120_000)) + "}"), "too many to be one record"),
    "12b": ({"key": "xx"}, stored(), "a.safetensors: want tensor 'xx', got x"),
    "12c": ({}, stored("F16"), "a.safetensors: tensor 'x': want dtype float32, got float16"),
    "12d": ({}, stored(shape=(5, 8)), "a.safetensors: tensor 'x': want shape [4, 8], got [5, 8]"),
    "12f": ({"path": "../../outside"}, None, "path '../../outside' leaves the data set: refused"),
    "12g": ({}, b"", "a.safetensors: not a safetensors file (0 bytes)"),
    "absolute": ({"path": "/etc/passwd"}, None, "leaves the data set"),
    "drive": ({"path": "C:\\x"}, None, "leaves the data set"),
    "hidden escape": ({"path": "blob/../../x"}, None, "leaves the data set"),
    "nul": ({"path": "blob/a\0b"}, None, "leaves the data set"),
    "short": ({}, b"abc", "not a safetensors file (3 bytes)"),
    "text": ({}, b"this is a text file, not a tensor", "not a safetensors file (33 bytes)"),
    "huge header": ({}, struct.pack("<Q", 1 << 60) + b"{}", "not a safetensors file (10 bytes)"),
    "no JSON": ({}, struct.pack("<Q", 4) + b"{{{{", "not a safetensors file: not JSON: "),
    "a list": ({}, struct.pack("<Q", 2) + b"[]", "its header is not JSON"),
    "no tensor": ({}, struct.pack("<Q", 9) + b'{"x": {}}', "tensor 'x' is not described as one"),
    "truncated": ({}, stored(size=100), "truncated or damaged"),
    "empty header": ({}, struct.pack("<Q", 2) + b"{}", "want tensor 'x', got nothing"),
}


@pytest.mark.parametrize("path", ["x" * 5000, f"{'x' * 300}/a.safetensors"])
def test_a_name_that_no_file_can_have_is_a_file_that_is_not_there(check, path):
    (fault,) = check(None, path=path)
    assert fault.kind == "skip"
    assert "no file at " in fault.message


@pytest.mark.parametrize("name", FAULTS)
def test_case_12_faults(check, name):
    arguments, data, message = FAULTS[name]
    (fault,) = check(data, **arguments)
    assert fault.kind == "fault"
    assert message in fault.message
    assert "\n" not in str(fault)
    assert fault.where == "workload.inputs.x"


def test_case_12e_file_at_the_flat_path_is_found_and_both_are_named(check):
    (warning,) = check(stored(), place="blob/workloads/elementwise/a.safetensors")
    assert warning.kind == "warning"
    assert f"{FOLDER}/a.safetensors; found at " in warning.message
    assert warning.message.endswith("blob/workloads/elementwise/a.safetensors")


def test_case_12e_the_other_way_round(check):
    (warning,) = check(stored(), path="blob/workloads/elementwise/a.safetensors")
    assert warning.kind == "warning"
    assert warning.message.endswith(f"{FOLDER}/a.safetensors")


def test_a_missing_file_names_both_places(check, tmp_path):
    (tmp_path / "blob").mkdir()
    (fault,) = check(None)
    assert fault.kind == "fault"
    assert (
        fault.message
        == f"no file at {tmp_path}/{FOLDER}/a.safetensors, nor at {tmp_path}/blob/workloads/elementwise/a.safetensors"
    )


def test_a_data_set_without_blobs_is_a_skip(check):
    (fault,) = check(None)
    assert fault.kind == "skip"
    assert fault.message.endswith("the data set's blobs are not here: download them too")


def test_a_pipe_is_not_opened(check, tmp_path):
    (tmp_path / FOLDER).mkdir(parents=True)
    os.mkfifo(tmp_path / FOLDER / "a.safetensors")
    (fault,) = check(None)
    assert "not a regular file" in fault.message


def test_without_a_root_only_the_path_is_judged(tmp_path):
    definition = load_definition(samples.write(tmp_path / "a.json", samples.BASE)).value
    for path, count in (("blob/a.safetensors", 0), ("../a.safetensors", 1)):
        inputs = {"x": {"type": "safetensors", "path": path, "tensor_key": "x"}, "w": {"type": "random"}}
        lines = samples.write_lines(tmp_path / "w.jsonl", samples.workload_line(inputs=inputs))
        assert len(check_workload(load_workloads(lines)[0], definition)) == count


@pytest.mark.parametrize(
    ("dtype", "data", "good"),
    [
        ("float4_e2m1", stored("U8", (4, 4)), True),
        ("int4", stored("I8", (4, 4)), True),
        ("float4_e2m1", stored("U8", (4, 8)), False),
        ("float4_e2m1", stored("U8", (4, 3)), False),
        ("float4_e2m1", stored("F4", (4, 8)), True),
        ("float4_e2m1", stored("F4", (4, 4)), False),
        ("int4", stored("I8", (4, 8)), False),
        ("int4", stored("F4", (4, 8)), False),
        ("float4_e2m1fn_x2", stored("U8", (4, 8)), True),
        ("float4_e2m1fn_x2", stored("U8", (4, 4)), False),
        ("float4_e2m1fn_x2", stored("F4", (4, 16)), True),
        ("float4_e2m1fn_x2", stored("F4", (4, 8)), False),
        ("float8_e4m3fn", stored("F8_E4M3"), True),
        ("unknown", stored("BF16"), True),
        ("bfloat16", stored("F16"), False),
    ],
)
def test_dtypes_of_stored_tensors(tmp_path, dtype, data, good):
    document = samples.changed(
        samples.BASE, inputs={**samples.BASE["inputs"], "x": {"shape": ["n", "h"], "dtype": dtype}}
    )
    definition = load_definition(samples.write(tmp_path / "a.json", document)).value
    (tmp_path / "a.safetensors").write_bytes(data)
    inputs = {"x": {"type": "safetensors", "path": "a.safetensors", "tensor_key": "x"}, "w": {"type": "random"}}
    lines = samples.write_lines(tmp_path / "w.jsonl", samples.workload_line(inputs=inputs))
    assert (check_workload(load_workloads(lines)[0], definition, tmp_path) == ()) is good


def test_offsets_are_of_the_file(tmp_path):
    path = tmp_path / "a.safetensors"
    path.write_bytes(stored(shape=(2,))[:-8] + struct.pack("<2f", 1.5, -2.0))
    tensor = blobs.read_header(path)["x"]
    assert (tensor.dtype, tensor.shape) == ("float32", (2,))
    assert struct.unpack("<2f", path.read_bytes()[tensor.start : tensor.end]) == (1.5, -2.0)


def test_files_written_by_the_safetensors_library(tmp_path):
    numpy = pytest.importorskip("numpy")
    library = pytest.importorskip("safetensors.numpy")
    path = tmp_path / "a.safetensors"
    library.save_file({"a": numpy.arange(6, dtype="int32").reshape(2, 3), "b": numpy.ones((), dtype="float64")}, path)
    tensors = blobs.read_header(path)
    assert {key: (tensor.dtype, tensor.shape) for key, tensor in tensors.items()} == {
        "a": ("int32", (2, 3)),
        "b": ("float64", ()),
    }
    assert path.read_bytes()[tensors["a"].start : tensors["a"].end] == numpy.arange(6, dtype="int32").tobytes()


def test_links_are_followed(check, tmp_path):
    """Model hubs keep large files in one place and link to them; a link to no regular file is refused."""
    place = f"{FOLDER}/a.safetensors"
    (tmp_path / FOLDER).mkdir(parents=True)
    (tmp_path / "elsewhere").write_bytes(stored())
    (tmp_path / place).symlink_to(tmp_path / "elsewhere")
    assert check(None) == ()
    for target, said in (("/dev/zero", "not a regular file"), (place, "cannot be read"), ("/nowhere", "cannot be")):
        (tmp_path / place).unlink()
        (tmp_path / place).symlink_to(target if target != place else tmp_path / place)
        (fault,) = check(None)
        assert said in fault.message


@given(st.data())
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_file_is_a_message(check, data):
    content = bytearray(data.draw(st.sampled_from([stored(), described(x={"data_offsets": [0, 32]}), POINTER])))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=4))
        content = content or bytearray(b"x")
    for fault in check(bytes(content)):
        assert str(fault).isprintable()
        assert "a.safetensors" in fault.message
