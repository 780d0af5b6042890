"""C++ text: which files are compiled, what they already export, and a generated binding where they export nothing."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from pytest_flashinfer.build.errors import BuildError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_flashinfer.build.base import Source

UNITS = (".cpp", ".cc", ".cxx", ".cu")
_COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:.*\\\n)*.*$", re.MULTILINE)
_PYBIND = re.compile(r"\bPYBIND11_MODULE\s*\(\s*(\w+)")
_LIBRARY = re.compile(r"\bTORCH_LIBRARY(?:_FRAGMENT)?\s*\(\s*(\w+)")
_TVM_EXPORT = re.compile(r"\bTVM_FFI_(?:DLL_EXPORT_TYPED_FUNC|STATIC_INIT_BLOCK)\b")
_DEFINED = re.compile(r"\b(\w+)\s*\(")
_NOT_A_FUNCTION = frozenset({"if", "for", "while", "switch", "catch", "return", "sizeof", "decltype", "defined"})

# Light headers: <torch/extension.h> alone costs half a minute of compile time.
_TORCH_HEAD = "#include <torch/csrc/utils/pybind.h>\nnamespace torch { using namespace at; }\n"
_TVM_HEAD = "".join(
    f"#include <tvm/ffi/{name}.h>\n" for name in ("container/tensor", "dtype", "error", "extra/c_env_api", "function")
)


def units(sources: Sequence[Source]) -> list[str]:
    """Return the paths that are compiled: C++ and CUDA files that no other source includes."""
    included = {
        PurePosixPath(name).name
        for source in sources
        for name in re.findall(r'^\s*#\s*include\s*"([^"]+)"', source["content"], re.MULTILINE)
    }
    paths = [PurePosixPath(source["path"]) for source in sources]
    return [str(path) for path in paths if path.suffix in UNITS and path.name not in included]


def code_of(sources: Sequence[Source]) -> str:
    """Return the text of all sources without comments and preprocessor lines."""
    return "\n".join(_plain(source["content"]) for source in sources)


def module_name(code: str) -> str | None:
    """Return the name that `PYBIND11_MODULE` gives in `code`, or `None` where there is no such macro."""
    match = _PYBIND.search(code)
    return match.group(1) if match else None


def library_name(code: str) -> str | None:
    """Return the namespace that `TORCH_LIBRARY` registers in `code`, or `None`."""
    match = _LIBRARY.search(code)
    return match.group(1) if match else None


def exports_tvm(code: str) -> bool:
    """Whether `code` exports its functions through TVM FFI itself."""
    return _TVM_EXPORT.search(code) is not None


def torch_binding(code: str, function: str, file: str) -> str:
    """Return a file that binds `function`, defined in `code`, as a Python extension module."""
    body = f'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{ m.def("{function}", &{function}); }}\n'
    return f"{_TORCH_HEAD}{prototype(code, function, file)}\n{body}"


def tvm_binding(code: str, function: str, file: str) -> str:
    """Return a file that exports `function`, defined in `code`, through TVM FFI."""
    return f"{_TVM_HEAD}{prototype(code, function, file)}\nTVM_FFI_DLL_EXPORT_TYPED_FUNC({function}, {function});\n"


def prototype(code: str, function: str, file: str) -> str:
    """Return the declaration of the host function `function` that `code` defines, as `"void run(torch::Tensor x);"`.

    Raises `BuildError` where it is not defined, is a kernel, or cannot be linked to from another file.
    """
    for match in re.finditer(rf"\b{re.escape(function)}\s*\(", code):
        end = _closing(code, match.end())
        head = code[max(code.rfind(mark, 0, match.start()) for mark in ";{}") + 1 : match.start()].strip()
        if not head or not re.match(r"\s*(?:noexcept\s*)?\{", code[end:]):
            continue  # a call or a declaration
        words = set(head.split())
        if "__global__" in words:
            raise BuildError(f"{function} in {file} is a __global__ kernel; name the host function that launches it")
        if words & {"static", "inline"} or head.startswith("template"):
            raise BuildError(f"{function} in {file} is static, inline or a template; make it a plain function")
        return f"{head} {code[match.start() : end]};"
    found = ", ".join(dict.fromkeys(_functions(code))) or "none"
    raise BuildError(f"{file} defines no function {function!r}; functions found: {found}; see entry_point")


def _plain(content: str) -> str:
    text = _COMMENT.sub(lambda match: match.group() if match.group().startswith('"') else " ", content)
    return _DIRECTIVE.sub("", text)


def _closing(text: str, start: int) -> int:
    """Return the index after the parenthesis that closes the one before `start`."""
    depth, index = 1, start
    while depth and index < len(text):
        depth += {"(": 1, ")": -1}.get(text[index], 0)
        index += 1
    return index


def _functions(text: str) -> list[str]:
    starts = [(match.group(1), match.end()) for match in _DEFINED.finditer(text)]
    return [
        name
        for name, end in starts
        if name not in _NOT_A_FUNCTION and re.match(r"\s*(?:noexcept\s*)?\{", text[_closing(text, end) :])
    ]
