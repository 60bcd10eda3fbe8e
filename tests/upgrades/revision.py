"""The code of an earlier revision in a folder of its own, and what its processes are."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from rmhub.hubs import BASE, ROLES, Hub
from rmhub.supervisor import Process

# Nothing that a hub runs; most of what there is.
_LEFT_OUT = (":(exclude)tests", ":(exclude)docs/screenshots")
_ASK = """
import json, django
django.setup()
from rmhub import hubs
print(json.dumps({"folder": str(hubs.BASE), "roles": hubs.ROLES}))
"""


class Unusable(Exception):
    """That revision cannot be run beside today's; the text is one sentence that says why."""


@dataclass(frozen=True, slots=True)
class Code:
    """`name`: what it is called in the report. `folder`: where its `manage.py` is."""

    name: str
    folder: Path

    def environment(self, hub: Hub, process: str = "") -> dict[str, str]:
        """The environment in which this code works for the hub."""
        return {**hub.environment(process), "PYTHONPATH": str(self.folder)}

    def roles(self, hub: Hub) -> Mapping[str, list[str]]:
        """Ask this code how its processes are started. Raises Unusable when it does not take today's settings, or
        needs what today's Python environment lacks.
        """
        asked = subprocess.run(
            [sys.executable, "-c", _ASK],
            env=self.environment(hub),
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if asked.returncode:
            said = asked.stderr.strip().splitlines() or [f"it ends with {asked.returncode}"]
            raise Unusable(f"{self.name} does not start in today's environment and settings: {said[-1]}")
        told = json.loads(asked.stdout.splitlines()[-1])
        if Path(told["folder"]).resolve() != self.folder.resolve():
            raise Unusable(f"{self.name} is in {self.folder}, and Python takes {told['folder']} instead")
        roles: dict[str, list[str]] = told["roles"]
        return roles

    def processes(self, hub: Hub, *, prefix: str) -> list[Process]:
        """Web server, worker and beat of the hub, as this code starts them. Raises Unusable."""
        roles = self.roles(hub)
        made = []
        for process in hub.processes(prefix=prefix):
            role = process.name.removeprefix(prefix)
            if role not in roles:
                raise Unusable(f"{self.name} has no process {role!r}")
            more = process.argv[1 + len(ROLES[role]) :]
            environment = {**(process.env or {}), "PYTHONPATH": str(self.folder)}
            argv = [sys.executable, *roles[role], *more]
            made.append(replace(process, argv=argv, env=environment, cwd=self.folder))
        return made


TODAY = Code("the code of today", BASE)


@contextmanager
def checked_out(revision: str) -> Iterator[Code]:
    """The code of a revision of this repository, in a folder that is removed at the end. Raises Unusable when there is
    no git, no repository or no such revision.
    """
    try:
        commit = _git("rev-parse", "--verify", "--short=12", f"{revision}^{{commit}}").decode().strip()
        archive = _git("archive", "--format=tar", commit, "--", ".", *_LEFT_OUT)
    except FileNotFoundError:
        raise Unusable("git is not installed") from None
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip().splitlines() or ["git says nothing"]
        raise Unusable(f"{revision} cannot be checked out of {BASE}: {said[0]}") from None
    with tempfile.TemporaryDirectory(prefix="rmhub-revision-") as folder:
        with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
            packed.extractall(folder, filter="data")
        yield Code(f"{revision} ({commit})", Path(folder))


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", "-C", str(BASE), *arguments], capture_output=True, check=True).stdout
