"""Build the clients that are compiled, from their own package managers, into a cache: Maven and javac, go, cargo.

    python -m benchmarks.peers.build [java] [go] [rust]

The cache is ``$KAFKAPROD_BENCHMARK_CACHE``, or ``~/.cache/kafkaprod-benchmarks``; everything in it can be deleted. A
client is built again when its sources here change.
"""

import functools
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

_HERE = Path(__file__).parent
_TIMEOUT_S = 1200


class PeerUnavailableError(Exception):
    """A tool is missing or a build failed: this client cannot be compared on this machine."""


def cache_dir() -> Path:
    """Where built clients are."""
    path = Path(os.environ.get("KAFKAPROD_BENCHMARK_CACHE") or Path.home() / ".cache" / "kafkaprod-benchmarks")
    path.mkdir(parents=True, exist_ok=True)
    return path


def command(client: str) -> Sequence[str]:
    """Command line of a compiled client, built if need be. Raises PeerUnavailableError."""
    return COMPILED[client][1](_built(client))


def link_command(client: str) -> Sequence[str]:
    """Command line of a client's program for the benchmark of links, built if need be. Raises PeerUnavailableError."""
    return LINKS[client](_built(client))


def sick_command(client: str) -> Sequence[str]:
    """Command line of its program for the benchmark of sick brokers, built if need be. Raises PeerUnavailableError."""
    return SICK[client](_built(client))


@functools.cache
def _built(client: str) -> Path:
    source = _HERE / client
    digest = hashlib.sha256()
    for path in sorted(path for path in source.rglob("*") if path.is_file()):
        digest.update(path.read_bytes())
    target = cache_dir() / f"{client}-{digest.hexdigest()[:12]}"
    stamp = target / "built"
    if not stamp.exists():
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target)
        COMPILED[client][0](target)
        stamp.touch()
    return target


def _build_java(directory: Path) -> None:
    _resolve_jars(directory)
    _run(
        directory, "javac", "-cp", _class_path(directory), "-d", str(directory), "Bench.java", "Link.java", "Sick.java"
    )


def _java_command(directory: Path, main_class: str = "Bench") -> list[str]:
    return [*_jvm(), "-cp", os.pathsep.join([str(directory), _class_path(directory)]), main_class]


def _java_tools_command(directory: Path) -> list[str]:
    return [*_jvm(), "-cp", _class_path(directory), "org.apache.kafka.tools.ProducerPerformance"]


def _jvm() -> list[str]:
    # As kafka-run-class.sh sets it for the tools, with a heap that never is the limit.
    return [_tool("java"), "-Xmx512m", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"]


def _resolve_jars(directory: Path) -> None:
    _run(directory, "mvn", "-q", "-B", "dependency:build-classpath", f"-Dmdep.outputFile={directory / 'classpath'}")


def _class_path(directory: Path) -> str:
    return (directory / "classpath").read_text().strip()


def _build_go(directory: Path) -> None:
    _run(directory, "go", "build", "-o", "client", ".")
    for program in ("link", "sick"):
        if (directory / program).is_dir():
            _run(directory, "go", "build", "-o", f"{program}-client", f"./{program}")


def _build_rust(directory: Path) -> None:
    # What it depends on is compiled once, not for every change of the client.
    target = cache_dir() / "rust-target"
    _run(directory, "cargo", "build", "--release", "--locked", "--quiet", "--target-dir", str(target))
    shutil.copy(target / "release" / "client", directory / "client")


COMPILED: Mapping[str, tuple[Callable[[Path], None], Callable[[Path], list[str]]]] = {
    "java": (_build_java, _java_command),
    "java_tools": (_resolve_jars, _java_tools_command),
    "go": (_build_go, lambda directory: [str(directory / "client")]),
    "rust": (_build_rust, lambda directory: [str(directory / "client")]),
    "kfake": (_build_go, lambda directory: [str(directory / "client")]),
}


LINKS: Mapping[str, Callable[[Path], list[str]]] = {
    "java": lambda directory: _java_command(directory, "Link"),
    "go": lambda directory: [str(directory / "link-client")],
}


SICK: Mapping[str, Callable[[Path], list[str]]] = {
    "java": lambda directory: _java_command(directory, "Sick"),
    "go": lambda directory: [str(directory / "sick-client")],
}


def _tool(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise PeerUnavailableError(f"{name} is not on the PATH")
    return path


def _run(directory: Path, tool: str, *arguments: str) -> None:
    done = subprocess.run(
        [_tool(tool), *arguments], cwd=directory, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
    )
    if done.returncode != 0:
        raise PeerUnavailableError(f"{tool} {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")


def main() -> None:
    """Build those named, else all; say which cannot be."""
    for client in sys.argv[1:] or COMPILED:
        try:
            print(f"{client}: {' '.join(command(client))[:100]}")
        except PeerUnavailableError as error:
            print(f"{client}: not built: {error}")


if __name__ == "__main__":
    main()
