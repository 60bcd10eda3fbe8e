"""Each recipe of docs/contributing.md makes what it promises, with the files that it names and no other.

What is promised is in `checks/check_<name>.py`, which runs in the changed copy, in a process and a database of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import sizes
from tests.recipes.following import copy, follow, recipe, titles

PATIENCE = 600  # seconds, on a machine that does other things too
DATABASE = f"{os.environ.get('RMHUB_TEST_DB', 'test_rmhub')}_recipe"
RECIPES = {
    "A setting of an agreement": "setting",
    "A verb": "verb",
    "A column of a list": "column",
    "A transport": "transport",
    "A profile": "profile",
    "A report": "report",
}
ALONE = [(title,) for title in RECIPES]


def test_every_recipe_is_followed() -> None:
    assert titles() == list(RECIPES)


@pytest.mark.parametrize("titles", ALONE if sizes.ALL else [tuple(RECIPES)], ids=", ".join)
def test_what_the_recipes_promise_is_there(titles: tuple[str, ...], tmp_path: Path) -> None:
    """All in one copy; `make test-all` follows each alone, so that none needs what another one adds."""
    tree = tmp_path / "tree"
    tree.mkdir()
    copy(tree)
    blocks = [block for title in titles for block in recipe(title)]
    follow(blocks, tree)
    _run(tree, "ruff", "check", "--quiet", *(block.path for block in blocks))
    _run(tree, "ruff", "format", "--quiet", "--check", *(block.path for block in blocks))
    checks = [f"tests/recipes/checks/check_{RECIPES[title]}.py" for title in titles]
    _run(
        tree, "pytest", "-q", *checks, RMHUB_TEST_DB=f"{DATABASE}_{RECIPES[titles[0]]}", RMHUB_VAR=str(tmp_path / "var")
    )


def _run(tree: Path, *module: str, **environment: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *module],
        cwd=tree,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, f"{module}\n{done.stdout[-6000:]}\n{done.stderr[-3000:]}"
