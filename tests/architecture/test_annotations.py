"""Inner loops are plain C: every line of every nogil function scores 0 in Cython's annotation, and those that a .pxd
defines call nothing of Python's in any module that cimports them.

No list of hot functions to keep: whatever is declared nogil is hot. All sources are translated for it, once each, so
this is also where Cython's warnings and performance hints are looked for.
"""

from pathlib import Path

import pytest

from tests.architecture.core_sources import (
    PACKAGE,
    ROOT,
    annotation_scores,
    is_spoken_of,
    nogil_functions,
    python_calls_of_declarations,
    sources,
)

pytestmark = pytest.mark.timeout(900)  # to translate all takes a minute of CPU, in the first of these tests


def test_translation_gives_no_performance_hints(translated_core: tuple[Path, str]) -> None:
    directory, output = translated_core
    assert not is_spoken_of(output), output
    for path in sources(".pyx", root=PACKAGE):
        code = directory / "build" / path.relative_to(ROOT).with_suffix(".c")
        assert code.stat().st_mtime >= path.stat().st_mtime


@pytest.mark.parametrize(
    "output", ["performance hint: a.pyx:1:2: Exception check", "warning: a.pyx:1:2: Unused", "WARNING: x"]
)
def test_hints_and_warnings_are_seen(output: str) -> None:
    assert is_spoken_of(f"[1/2] Cythonizing kafkaprod/a.pyx\n{output}\n")
    assert not is_spoken_of("[1/2] Cythonizing kafkaprod/a.pyx\n")


def test_nogil_functions_do_no_python_work(translated_core: tuple[Path, str]) -> None:
    directory, _ = translated_core
    seen = set()
    offenders = []
    for path in sources(".pyx", root=PACKAGE):
        scores = annotation_scores(directory, path.stem)
        for function in nogil_functions(path):
            seen.add(function.name)
            offenders += [
                f"{path.name}:{line} in {function.name}: score {scores[line]}"
                for line in function.lines
                if scores[line] > 0
            ]
    assert offenders == []
    # The scan found what a record passes, so that it is not empty by mistake.
    assert {"append_locked", "append_sticky", "batch_open", "batch_extend", "try_acquire", "_take"} <= seen


def test_nogil_functions_of_declarations_do_no_python_work(translated_core: tuple[Path, str]) -> None:
    directory, _ = translated_core
    calls = python_calls_of_declarations(directory)
    seen = set()
    offenders = []
    for path in sources(".pxd", root=PACKAGE):
        file = str(path.relative_to(ROOT))
        for function in nogil_functions(path):
            seen.add(function.name)
            offenders += [
                f"{file}:{line} in {function.name}: {calls[file, line]}"
                for line in function.lines
                if (file, line) in calls
            ]
    assert offenders == []
    assert {"put_varint", "get_varint", "batch_append"} <= seen


def test_python_calls_of_declarations_are_seen(tmp_path: Path) -> None:
    code = tmp_path / "build" / "kafkaprod" / "a.c"
    code.parent.mkdir(parents=True)
    code.write_text(
        '/* "kafkaprod/a.pxd":7\n * x  # <<<\n */\n  __pyx_r = (__pyx_v_u + 1);\n}\n\n'
        '/* "kafkaprod/a.pxd":8\n * y  # <<<\n */\n  __pyx_t_1 = PyLong_FromLong(__pyx_v_n);\n'
        '/* "kafkaprod/a.pxd":9\n * z  # <<<\n */\n  __Pyx_RefNannyFinishContext();\n  return;\n}\n__Pyx_After();\n'
        '/* "kafkaprod/a.pyx":10\n * w  # <<<\n */\n  PyLong_FromLong(__pyx_v_n);\n'
    )
    assert python_calls_of_declarations(tmp_path) == {("kafkaprod/a.pxd", 8): "PyLong_FromLong("}


def test_annotation_scores_see_python_work(translated_core: tuple[Path, str]) -> None:
    directory, _ = translated_core
    lines = next(path for path in sources(".pyx") if path.stem == "accumulator").read_text().split("\n")
    scores = annotation_scores(directory, "accumulator")
    assert scores[next(i for i, line in enumerate(lines, 1) if "raise RecordTooLargeError" in line)] > 0
