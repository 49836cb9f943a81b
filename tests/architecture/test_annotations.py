"""Inner loops are plain C: every line of every nogil function of the core scores 0 in Cython's annotation.

No list of hot functions to keep: whatever is declared nogil is hot.
"""

from pathlib import Path

from tests.architecture.core_sources import annotation_scores, nogil_functions, sources


def test_translation_gives_no_performance_hints(translated_core: tuple[Path, str]) -> None:
    _, output = translated_core
    assert "Cythonizing kafkaprod/_core/queues/accumulator.pyx" in output
    assert "performance hint" not in output.lower()
    assert "warning" not in output.lower()


def test_nogil_functions_do_no_python_work(translated_core: tuple[Path, str]) -> None:
    directory, _ = translated_core
    seen = set()
    offenders = []
    for path in sources(".pyx"):
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


def test_annotation_scores_see_python_work(translated_core: tuple[Path, str]) -> None:
    directory, _ = translated_core
    lines = next(path for path in sources(".pyx") if path.stem == "accumulator").read_text().split("\n")
    scores = annotation_scores(directory, "accumulator")
    assert scores[next(i for i, line in enumerate(lines, 1) if "raise RecordTooLargeError" in line)] > 0
