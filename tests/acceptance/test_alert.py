"""A partner is down until its pair is suspended, and Slack hears of it: by the processes that do it in production."""

from __future__ import annotations

import subprocess
from contextlib import closing

import psycopg
import pytest

from messaging.demo import exchange
from messaging.demo.stage import Link, Parameters, Stage, running
from rmhub.hubs import free_ports
from tests.messaging.notifications.test_alerting import service
from tests.rmhub.conditions import eventually

pytestmark = pytest.mark.acceptance

# Nobody listens where the partner's server was.
IN_THE_HUB = """
from partners import services
from partners.models import Endpoint
services.endpoint_update(endpoint=Endpoint.objects.get(party__is_own=False), address="http://127.0.0.1:PORT/")

from messaging.journal.audit import Actor
from messaging.notifications.services import rules
rules.rule_create(
    actor=Actor("admin"), name="Operations", channel="slack", secret="URL", least="error",
    events=["incident.opened", "incident.resolved"],
)
"""


def _down(stage: Stage, hook: str) -> None:
    buyer = stage.buyer
    code = IN_THE_HUB.replace("PORT", str(free_ports(1)[0])).replace("URL", hook)
    subprocess.run(buyer.manage("shell", "-v", "0", "-c", code), env=buyer.environment(), check=True, timeout=600)


def test_slack_hears_of_a_partner_that_is_down() -> None:
    parameters = Parameters(agreements=1, retries=1, timeout=1, retry_interval=1)
    with service() as slack, running(link=Link(), parameters=parameters) as (stage, _):
        _down(stage, f"{slack.url}/services/T0/B0/xyz")
        with closing(stage.client(stage.buyer)) as client:
            exchange.hand_over(client, "tpa:demo:1", exchange.documents()[0])
        eventually(lambda: slack.asked)
        with psycopg.connect(stage.buyer.database_url, autocommit=True) as buyer:
            [(code, number)] = buyer.execute(
                "SELECT p.code, i.number FROM messaging_pair p JOIN messaging_incident i ON i.pair_id = p.id"
                " WHERE p.flow = 'suspended'"
            ).fetchall()
        [(path, _, told)] = slack.asked
        assert path == "/services/T0/B0/xyz"
        assert f"INC-{number} opened" in told["text"]
        assert code.replace(">", "&gt;") in told["text"]
