"""Every sentence of the core about a verb that is not possible stands where catalogs are made of it."""

from __future__ import annotations

from messaging.profiles.refusals import SENTENCES, refused
from messaging.protocol.pair_state import Flow, Kind
from messaging.protocol.sender import REFUSALS


def test_every_refusal_of_the_core_is_in_the_catalogs() -> None:
    assert {str(sentence) for sentence in SENTENCES} == set(REFUSALS.values())


def test_a_refusal_is_said() -> None:
    assert refused(Flow.SUSPENDED, Kind.SUSPEND) == "The pair is suspended already."
