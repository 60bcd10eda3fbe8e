"""The page for integrators says what the code does."""

from __future__ import annotations

import re

from messaging.protocol.ws.names import Style
from messaging.protocol.ws.rules import RULES, Need, check
from tests import ROOT
from tests.protocol.ws.messages import read

PAGE = (ROOT / "docs" / "atomic-transactions.md").read_text()
_SHOWN = {Need.PHYSICAL: "MUST, physical", Need.MAY: "may", Need.NOWHERE: "`none`"}


def test_examples_on_the_wire_are_messages_that_break_no_rule() -> None:
    examples = [example for example in re.findall(r"```xml\n(.*?)```", PAGE, re.DOTALL) if "s:Envelope" in example]
    assert len(examples) >= 8
    for example in examples:
        assert check(read(example.encode()), strict=True, profile=Style.SEED) == ()


def test_addressing_table_is_the_one_of_the_code() -> None:
    documented = {}
    for line in PAGE.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 6 and cells[1] in ("seed", "oasis", "both"):
            for kind in cells[0].split(", "):
                for profile in Style if cells[1] == "both" else (Style(cells[1]),):
                    documented[kind, profile] = cells[2:]
    assert documented == {
        key: [_SHOWN.get(need, str(need)) for need in (row.message_id, row.relates_to, row.reply_to, row.sender)]
        for key, row in RULES.items()
    }
