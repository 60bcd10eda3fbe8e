"""The peer's own Python environment, under var/bench: made from PyPI once, and again when what it needs has changed."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from tests.benchmarks.arena import Say

REQUIREMENTS = Path(__file__).with_name("peer-requirements.txt")
# oscrypto 1.3.0 reads the version of OpenSSL with a pattern that knows one digit for the last number: with 3.0.10 and
# later django-pyas2 does not import (github.com/wbond/oscrypto issues 75 and 78). One more character helps.
NARROW = r"(\\d\\.\\d\\.\\d[a-z]*)"
WIDE = r"(\\d\\.\\d\\.\\d+[a-z]*)"


class PeerUnavailable(RuntimeError):
    """The peer could not be installed, so there is nothing to compare with."""


def install(var: Path, say: Say) -> Path:
    """The environment's folder. Raises PeerUnavailable with what the installer said (no network, for example)."""
    folder = var / "pyas2-venv"
    stamp = folder / "installed"
    wanted = hashlib.sha256(REQUIREMENTS.read_bytes() + sys.version.encode()).hexdigest()
    if stamp.exists() and stamp.read_text() == wanted:
        return folder
    say("installing the peer, django-pyas2, from PyPI into an environment of its own")
    if folder.exists():
        shutil.rmtree(folder)
    _run([sys.executable, "-m", "venv", *(["--without-pip"] if _uv() else []), str(folder)])
    python = folder / "bin" / "python"
    if uv := _uv():
        _run([uv, "pip", "install", "--quiet", "--python", str(python), "--requirement", str(REQUIREMENTS)])
    else:
        _run([str(python), "-m", "pip", "install", "--quiet", "--requirement", str(REQUIREMENTS)])
    mend_oscrypto(folder)
    _run([str(python), "-c", "import pyas2lib"])
    stamp.write_text(wanted)
    return folder


def mend_oscrypto(folder: Path) -> list[Path]:
    """Widens the version pattern; returns the files that it changed."""
    changed = []
    for path in folder.glob("lib/python3*/site-packages/oscrypto/_openssl/_libcrypto_c*.py"):
        text = path.read_text(encoding="utf-8")
        if NARROW in text:
            path.write_text(text.replace(NARROW, WIDE), encoding="utf-8")
            changed.append(path)
    return changed


def _uv() -> str | None:
    beside = Path(sys.executable).with_name("uv")
    return str(beside) if beside.exists() else shutil.which("uv")


def _run(argv: list[str]) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip()[-2000:]
        raise PeerUnavailable(f"{' '.join(argv[:4])} ... failed:\n{said}")


def versions() -> dict[str, str]:
    """What the peer runs on: the packages that matter, as they are pinned."""
    pins = (line.split("==") for line in REQUIREMENTS.read_text(encoding="utf-8").splitlines() if "==" in line)
    wanted = {"django-pyas2", "pyas2lib", "django", "gunicorn", "psycopg2-binary", "py-spy"}
    return {f"peer {name}": version for name, version in pins if name in wanted}
