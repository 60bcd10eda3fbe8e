"""The code of the previous commit works on today's tables, alone and beside today's code, under traffic.

And what such a run is for is found: a table that the old code cannot write, and code that cannot be run at all.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from rmhub.hubs import Hub
from tests import ROOT
from tests.upgrades.revision import Code, Unusable, checked_out
from tests.upgrades.run import SETTINGS, SHARE, side_by_side, text

pytestmark = pytest.mark.acceptance

DOCUMENTS = 6
KEPT = {"lost": 0, "delivered_twice": 0, "out_of_order": 0, "effects_twice": 0, "effects_missing": 0}


@pytest.fixture
def previous() -> Iterator[Code]:
    """The code of the commit before this one, where there is a history."""
    with ExitStack() as stack:
        try:
            code = stack.enter_context(checked_out("HEAD~1"))
        except Unusable as error:
            pytest.skip(str(error))
        yield code


@pytest.fixture
def altered(tmp_path: Path) -> Code:
    """A copy of today's code, to be changed."""
    folder = tmp_path / "altered"
    for name in ("messaging", "partners", "rmhub", "rmhub_client", "templates", "static", "docs"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "screenshots"))
    shutil.copy(ROOT / "manage.py", folder)
    return Code("the altered code", folder)


def change(code: Code, path: str, old: str, new: str) -> None:
    file = code.folder / path
    before = file.read_text()
    assert before.count(old) == 1, "the test knows another source"
    file.write_text(before.replace(old, new))


@pytest.mark.long  # while nothing is released a commit may change the one migration as it likes
def test_the_code_of_the_commit_before_and_todays_work_side_by_side(previous: Code) -> None:
    found = side_by_side(previous, print, documents=DOCUMENTS)
    assert found.broken == [], text(found)
    assert found.submitted >= 2 * DOCUMENTS * len(found.phases)
    assert [one.name for one in found.phases][1:2] == ["old and new code side by side"]
    assert min(found.served[name] for name in ("old-web", "new-web")) >= SHARE
    assert min(found.sent[name] for name in ("old-worker", "new-worker")) >= SHARE
    assert {name: found.judged[name] for name in KEPT} == KEPT
    assert found.judged["effects_once"] == found.judged["delivered"] >= found.submitted
    assert "Nothing was lost" in text(found)


def test_a_column_that_old_code_writes_and_the_tables_lack_is_found(altered: Code) -> None:
    """As if today's migrations had dropped it."""
    change(
        altered,
        "messaging/models/traffic.py",
        "    address = models.CharField(max_length=500)\n",
        "    address = models.CharField(max_length=500)\n    colour = models.TextField(null=True)\n",
    )
    found = side_by_side(altered, print, documents=DOCUMENTS)
    assert any(one.startswith("old-") and 'column "colour"' in one for one in found.broken), found.broken
    assert found.phases == [], "the new code came to help"
    assert "BROKEN: old-" in text(found)


@pytest.mark.long
def test_a_column_that_old_code_leaves_empty_is_found(altered: Code) -> None:
    spoil = ["ALTER TABLE messaging_message ADD COLUMN colour text NOT NULL"]
    found = side_by_side(altered, print, documents=DOCUMENTS, spoil=spoil)
    assert any(one.startswith("old-") and 'column "colour"' in one for one in found.broken), found.broken
    assert any("POST /api/v1/messages: 500" in one for one in found.broken), "an application was told"


def test_code_that_cannot_be_run_is_said_in_one_sentence(altered: Code, tmp_path: Path) -> None:
    with pytest.raises(Unusable, match="no-such-thing cannot be checked out of "), checked_out("no-such-thing"):
        pass
    settings = altered.folder / "rmhub" / "settings.py"
    settings.write_text(settings.read_text().replace("RMHUB_DRAIN_SECONDS", "RMHUB_DRAINING_SECONDS"))
    nowhere = Hub("a", "postgresql://127.0.0.1/none", "redis://127.0.0.1/0", tmp_path, 1, settings=SETTINGS)
    with pytest.raises(Unusable, match=r"\Athe altered code does not start in .*: .*RMHUB_DRAIN_SECONDS.*\Z"):
        altered.processes(nowhere, prefix="old-")
