"""Reads a recipe from docs/contributing.md and does what it says.

A block belongs to the file that the sentence before it ends with: "New file `path`:" is followed by all of it, "In
`path`:" by what changes there, as `diff` writes it; `@@` is between two places.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

BASE = Path(__file__).resolve().parent.parent.parent
COPIED = ("manage.py", "pyproject.toml", "rmhub", "partners", "messaging", "templates", "tests")
SHARED = ("docs", "static")
_BLOCK = re.compile(
    r"(?:(?P<new>New file)|In) `(?P<path>[\w/.]+)`(?P<beside>, beside an empty `__init__\.py`)?:\n\n"
    r"```\w+\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Block:
    """What a recipe says about one file."""

    path: str
    text: str
    is_new: bool
    in_new_package: bool


def recipe(title: str) -> list[Block]:
    """The blocks under the heading `### <title>`. Raises KeyError."""
    text = (BASE / "docs" / "contributing.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^### (.+?)\n(.*?)(?=^##|\Z)", text, re.DOTALL | re.MULTILINE))
    found = [Block(one["path"], one["text"], bool(one["new"]), bool(one["beside"])) for one in _iter(sections[title])]
    assert len(found) == sections[title].count("\n```") // 2, f"a block of “{title}” does not say which file it is"
    return found


def titles() -> list[str]:
    """The headings of all recipes."""
    text = (BASE / "docs" / "contributing.md").read_text(encoding="utf-8")
    (recipes,) = re.findall(r"^## Six recipes\n(.*?)^## ", text, re.DOTALL | re.MULTILINE)
    return re.findall(r"^### (.+)$", recipes, re.MULTILINE)


def copy(into: Path) -> None:
    """Copies the tree, with compiled files, which are valid as long as the times of their sources are."""
    for name in COPIED:
        source, target = BASE / name, into / name
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("golden", "fixtures", "*.jpg", "*.png"))
        else:
            shutil.copy2(source, target)
    for name in SHARED:
        (into / name).symlink_to(BASE / name)


def follow(blocks: list[Block], tree: Path) -> None:
    """Does what the blocks say to the files below `tree`, and to no other."""
    for block in blocks:
        path = tree / block.path
        if block.is_new:
            assert not path.exists(), f"{block.path} is there already"
            path.parent.mkdir(exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
            if block.in_new_package:
                (path.parent / "__init__.py").touch()
        else:
            path.write_text(_changed(path, block.text), encoding="utf-8")


def _changed(path: Path, diff: str) -> str:
    text = path.read_text(encoding="utf-8")
    for place in diff.split("@@\n"):
        lines = place.splitlines()
        before = "".join(f"{line[1:]}\n" for line in lines if line[:1] != "+")
        after = "".join(f"{line[1:]}\n" for line in lines if line[:1] != "-")
        assert text.count(before) == 1, f"{path.name} has this {text.count(before)} times:\n{before}"
        text = text.replace(before, after)
    return text


def _iter(text: str) -> Iterator[re.Match[str]]:
    return _BLOCK.finditer(text)
