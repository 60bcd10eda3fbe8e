"""A partner that is still to be set up: its bundle lies in the world's folder, and its server is there already."""

from __future__ import annotations

import json

from tests.worlds.ux.plan import ORDERS, OWN_NAME, OWN_ROOT, Plan

NAME, SLUG, ZEPHYR = "Zephyr Aviation", "zephyr", "tpa:ux:zephyr"
BUNDLE = "zephyr.json"
OWN_URI = f"{OWN_ROOT}/ebxml/msh"  # ours for whoever comes new


def write(plan: Plan) -> None:
    """The bundle as Zephyr's own hub would have written it, with the addresses of its server."""
    path = f"/ebxml/msh/{SLUG}"
    address = f"http://127.0.0.1:{plan.port}/ok/{SLUG}"
    bundle = {
        "format": "rmhub-bundle",
        "version": 1,
        "hub": NAME,
        "parties": [
            {
                "name": NAME,
                "contact": "EDI desk, edi@zephyr.example",
                "time_zone": "Europe/Oslo",
                "hours": "Mon-Fri 7-19",
                "identifiers": [{"type": "DUNS", "value": "300000001"}],
                "endpoints": [
                    {
                        "name": SLUG,
                        "transport": "http",
                        "uri": f"http://msh.{SLUG}.example{path}",
                        "error_uri": f"http://msh.{SLUG}.example/ebxml/errors/{SLUG}",
                        "address": address + path,
                        "error_address": f"{address}/ebxml/errors/{SLUG}",
                        "service_address": f"http://127.0.0.1:{plan.port}/partner/{SLUG}/",
                        "connect_timeout": 3,
                        "read_timeout": 5,
                    }
                ],
            }
        ],
        "agreements": [
            {
                "tpa_id": ZEPHYR,
                "name": f"Orders and invoices, {NAME}",
                "own_party": OWN_NAME,
                "partner": NAME,
                "own_endpoint": OWN_URI,
                "partner_endpoint": f"http://msh.{SLUG}.example{path}",
                "state": "active",
                "services": [{"service": ORDERS, "action": "*", "direction": "both"}],
                "terms": {"profile": "ebxml", "timeout": 60, "retries": 5, "retry_interval": 60},
            }
        ],
    }
    (plan.folder / BUNDLE).write_text(json.dumps(bundle, indent=1))
