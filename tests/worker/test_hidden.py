"""References and definitions that lie below a place which every worker may read."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from pytest_flashinfer.worker import allowed, landlock, sandbox
from pytest_flashinfer.worker.allowed import readable
from pytest_flashinfer.worker.pool import Pool


def read(lab, expression):
    """Evaluate an expression in a worker; return its value, or the type of error it raised."""
    text = f"import os\ndef run(x):\n    try: print('value', {expression})\n"
    return lab.run(
        f"{text}    except Exception as error: print(type(error).__name__)\n    return x.clone()\n", destination=False
    ).log.strip()


def test_a_checkout_below_an_allowed_place_is_left_out_of_it():
    checkout = Path(sandbox.__file__).parents[2]
    if not (checkout / "pyproject.toml").exists() or checkout.parent == Path("/"):
        pytest.skip("this package is installed without its checkout")
    paths = {Path(path) for path in readable([str(checkout.parent)], {}, [])}
    for place in (checkout / "definitions", checkout / "tests"):
        assert not paths & {place, *place.parents}
    assert checkout / "pytest_flashinfer" in paths


@pytest.mark.skipif(not landlock.abi(), reason="this kernel has no Landlock")
def test_what_lies_below_an_allowed_place_can_be_hidden_with_the_cache_and_the_temporary_folder(
    lab, tmp_path, monkeypatch
):
    """As where all of it lies below /opt: the pool is told that the folder around everything may be read."""
    for name in ("project/definitions", "cache/references", "library", "temporary"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "text").write_text("x")
    monkeypatch.setattr(allowed, "_SYSTEM", (*allowed._SYSTEM, str(tmp_path)))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    lab = type(lab)(Pool("cpu", hidden=[tmp_path / "project"], cache=tmp_path / "cache"), tmp_path / "project")
    try:
        for name in ("project/definitions", "cache/references", "temporary"):
            assert read(lab, f"open({str(tmp_path / name / 'text')!r}).read()") == "PermissionError"
        assert read(lab, f"open({str(tmp_path / 'library' / 'text')!r}).read()") == "value x"
        assert read(lab, "open(os.path.dirname(__file__) + '/main.py').read(3)") == "value imp"
        assert read(lab, "open(os.path.dirname(__file__) + '/new', 'w').write('abc')") == "value 3"
    finally:
        lab.close()
        lab.pool.close()
