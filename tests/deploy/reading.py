"""Reads the files of `deploy/` as far as tests are about them."""

from __future__ import annotations

import configparser
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests import ROOT

DEPLOY = ROOT / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose/compose.yaml").read_text())
IMAGE = "registry.example.org/rmhub"
# Services of compose that run our code; the others are servers of others.
HUB: dict[str, dict[str, Any]] = {
    name: service for name, service in COMPOSE["services"].items() if service["image"].startswith(IMAGE)
}
MANIFESTS: list[dict[str, Any]] = [
    one for path in sorted((DEPLOY / "kubernetes").glob("*.yaml")) for one in yaml.safe_load_all(path.read_text())
]
PODS: dict[str, dict[str, Any]] = {
    one["metadata"]["name"].removeprefix("rmhub-"): one["spec"]["template"]["spec"]
    for one in MANIFESTS
    if one["kind"] in ("Deployment", "Job")
}


def role_of(name: str) -> str:
    """`web1` and `rmhub-web@.service` are both a web."""
    return re.sub(r"@?\d*$", "", name.removeprefix("rmhub-").removesuffix(".service"))


class Unit:
    """A systemd unit with what its drop-in adds: section -> name -> all values, in their order."""

    def __init__(self, path: Path) -> None:
        self.name = path.name
        self._found: dict[str, dict[str, list[str]]] = {}
        for one in (path, *self._common(path)):
            parser = configparser.RawConfigParser(
                strict=False, dict_type=_Everything, delimiters=("=",), comment_prefixes=("#",), interpolation=None
            )
            parser.optionxform = str  # type: ignore[assignment,method-assign]
            parser.read(one)
            for section in parser.sections():
                for name, value in parser.items(section):
                    self._found.setdefault(section, {}).setdefault(name, []).extend(str(value).split("\n"))

    @staticmethod
    def _common(path: Path) -> list[Path]:
        return sorted(path.parent.glob("rmhub-.service.d/*.conf")) if path.suffix == ".service" else []

    def all(self, section: str, name: str) -> list[str]:
        return self._found.get(section, {}).get(name, [])

    def one(self, section: str, name: str) -> str:
        found = self.all(section, name)
        assert found, f"{self.name}: no {name}= in [{section}]"
        return found[-1]

    @property
    def command(self) -> list[str]:
        return shlex.split(self.one("Service", "ExecStart"))


class _Everything(dict[str, Any]):
    """Keeps each value of a name that comes several times, as systemd does for its lists."""

    def __setitem__(self, key: str, value: Any) -> None:
        if isinstance(value, list) and isinstance(self.get(key), list):
            value = [*self[key], *value]
        super().__setitem__(key, value)


UNITS = [Unit(path) for path in sorted((DEPLOY / "systemd").glob("*.service"))]


def environment_file() -> dict[str, str]:
    """What /etc/rmhub/rmhub.env sets, and what the units add to it."""
    lines = (DEPLOY / "systemd/rmhub.env").read_text().splitlines()
    found = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    for line in UNITS[0].all("Service", "Environment"):
        found |= dict(word.split("=", 1) for word in shlex.split(line))
    return found


def config_map() -> Mapping[str, str]:
    """What the pods have for settings, the secret ones too."""
    found: dict[str, str] = {}
    for one in MANIFESTS:
        found |= one.get("data", {}) if one["kind"] == "ConfigMap" else one.get("stringData", {})
    return found


@dataclass(frozen=True, slots=True)
class Step:
    """One stage of the Containerfile: its name, what it is made from, and its instructions."""

    name: str
    source: str
    does: tuple[tuple[str, str], ...]

    def all(self, instruction: str) -> list[str]:
        return [rest for word, rest in self.does if word == instruction]


def stages() -> dict[str, Step]:
    """The stages of the Containerfile by name. AssertionError for a line that begins with no instruction."""
    known = {"FROM", "RUN", "COPY", "WORKDIR", "ENV", "USER", "CMD", "VOLUME", "EXPOSE"}
    lines = [line for line in (DEPLOY / "Containerfile").read_text().splitlines() if not line.lstrip().startswith("#")]
    found: dict[str, Step] = {}
    for line in re.sub(r"\\\n", " ", "\n".join(lines)).splitlines():
        if not line.strip():
            continue
        word, _, rest = line.partition(" ")
        assert word in known, line
        if word == "FROM":
            source, named, name = rest.partition(" AS ")
            assert named, line
            current = name.strip()
            found[current] = Step(current, source.strip(), ())
        else:
            step = found[current]
            found[current] = Step(step.name, step.source, (*step.does, (word, rest.strip())))
    return found
