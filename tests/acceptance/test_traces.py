"""Traces of two real hubs: what web servers and workers of both tell of each message fits together."""

from __future__ import annotations

from collections import defaultdict

import pytest

from tests.acceptance.test_connections import hubs
from tests.rmhub.collector import Told, collecting

pytestmark = pytest.mark.acceptance

DOCUMENTS = 24
OUT, IN = {"submit", "send", "acknowledged"}, {"receive", "acknowledge", "deliver"}


def test_each_message_between_two_hubs_is_a_trace_in_each_and_they_are_linked() -> None:
    with collecting() as collector:
        with hubs(settings={"RMHUB_TRACES_URL": collector.url}) as scene:
            with scene.exchanging(DOCUMENTS):
                pass
            scene.ends_well()
        # All processes have ended, and handed over what they had.
        spans = collector.spans
    traces: dict[str, list[Told]] = defaultdict(list)
    for span in spans:
        traces[span.trace].append(span)
    by_span = {(span.trace, span.span): span for span in spans}
    found = [{span.operation for span in trace} for trace in traces.values()]
    assert found.count(OUT) == found.count(IN) == DOCUMENTS == len(found) / 2
    for trace in traces.values():
        [root] = [span for span in trace if not span.parent]
        assert {span.parent for span in trace if span is not root} == {root.span}
        assert root.operation in ("submit", "receive")
    # Who received, says which transmission that was; and who was acknowledged, which receipt.
    for operation, cause in (("receive", "send"), ("acknowledged", "acknowledge")):
        for span in spans:
            if span.operation == operation and span.attributes["rmhub.event"] != "message.duplicate":
                [link] = span.links
                assert by_span[link].operation == cause
                assert by_span[link].name.split(" ")[1] == span.name.split(" ")[1]
