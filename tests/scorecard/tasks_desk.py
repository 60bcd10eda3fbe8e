"""Documents by hand, many partners at once, service levels, the partner portal, lists, language: T13 to T21."""

from __future__ import annotations

from base64 import b64encode
from typing import Any
from urllib.parse import quote

from tests.messaging.onboarding.authority import FIXED
from tests.scorecard.player import Failed, Player, until
from tests.scorecard.stage import World
from tests.scorecard.tasks_admin import AGREEMENT
from tests.worlds.ux.plan import ORDERS

_ORDER = "<Order><Number>{}</Number></Order>"


def _submitted(world: World, number: str) -> str:
    """The id of a document with this number that the partner has acknowledged."""
    body = {
        "agreement": AGREEMENT,
        "service": ORDERS,
        "action": "Order",
        "attributes": {"order": number},
        "payloads": [
            {
                "content_base64": b64encode(_ORDER.format(number).encode()).decode(),
                "content_type": "application/xml",
            }
        ],
    }
    made = world.api("POST", "/messages", body, **{"Idempotency-Key": f"order-{number}"})
    until(lambda: world.api("GET", f"/messages/{made['id']}")["state"] == "delivered", f"order {number} arrives")
    return str(made["id"])


def _agreement(world: World) -> dict[str, Any]:
    found = world.api("GET", f"/agreements?q={quote(AGREEMENT)}&limit=100")["data"]
    return next(one for one in found if one["tpa_id"] == AGREEMENT)


def find_by_business_key(player: Player, world: World) -> None:
    """T13: the message with order 4711."""
    wanted = _submitted(world, "SC-4711")
    player.begin()
    player.key("/")
    player.type("#search", "order:SC-4711")
    player.enter()
    player.sees(f"#row-{wanted}, [data-testid=attribute-order]")


def send_a_document(player: Player, world: World) -> None:
    """T14: send a document by hand, after a look at what would go out."""
    player.begin()
    player.go("Messages")
    player.press("send")
    player.type("agreement", AGREEMENT)
    player.press("send-continue")
    player.choose("[name=service]", ORDERS)
    player.type("[name=action]", "Order")
    player.type("[name=text]", _ORDER.format("SC-1"))
    player.type("[name=reason]", "Asked for by telephone")
    player.press("send-check")
    player.sees("checked")
    player.press("send-do")
    player.sees("message-state")
    player.stop()
    made = player.page.url.rstrip("/").rpartition("/")[2]
    until(lambda: world.api("GET", f"/messages/{made}")["state"] == "delivered", "the document arrives")


def edit_and_resubmit(player: Player, world: World) -> None:
    """T15: order 4712 went out with a wrong number: correct it and send it again."""
    wrong = _submitted(world, "SC-4712")
    player.begin()
    player.key("/")
    player.type("#search", wrong)
    player.enter()
    player.press("verb-edit")
    player.type("[name=text]", _ORDER.format("SC-4713"))
    player.type("[name=reason]", "The number was wrong")
    player.press("send-do")
    player.sees("message-state")
    player.stop()
    made = world.api("GET", f"/messages/{player.page.url.rstrip('/').rpartition('/')[2]}")
    if made["resubmitted_from"] != wrong:
        raise Failed(f"it is not linked to {wrong}, but to {made['resubmitted_from']}")
    until(lambda: world.api("GET", f"/messages/{made['id']}")["state"] == "delivered", "the corrected one arrives")


def tell_slack(player: Player, world: World) -> None:
    """T16: Slack hears of incidents, of errors and worse; a test gets there."""
    player.begin()
    player.go("Notifications")
    player.press("rule-new")
    player.type("name", "Operations")
    player.tick("channel-slack")
    player.type("secret", f"{world.partner}/hook")
    player.choose("[name=least]", "error")
    player.press("submit")
    player.press("rule-test")
    player.sees(".alert-success")
    player.stop()
    until(lambda: any("Test of the notification rule" in one["body"] for one in world.partners("/hooks")), "a test")


def onboard_many(player: Player, world: World) -> None:
    """T17: twenty partners from a spreadsheet, with agreements like one that there is."""
    rows = ["name,identifiers,uri,tpa_id"]
    rows += [f"Depot {one},DUNS:9{one:08d},https://depot{one}.example/msh,tpa:depot:{one}" for one in range(20)]
    file = world.folder / "depots.csv"
    file.write_text("\n".join(rows), encoding="utf-8")
    player.begin()
    player.go("Partners")
    player.press("bundle")
    player.give("csv-file", file)
    player.type("template", AGREEMENT)
    player.press("csv-dry-run")
    player.sees("dry-run")
    player.type("[name=reason]", "The depots of the new region")
    player.tick("activate")
    player.press("bundle-do")
    player.sees(".alert-success")
    player.stop()
    active = world.api("GET", f"/agreements?q={quote('tpa:depot:')}&state=active&limit=100")["data"]
    if len(active) != 20:
        raise Failed(f"{len(active)} of 20 agreements are active")


def service_level(player: Player, world: World) -> None:
    """T18: does the partner of this agreement acknowledge in time this month, and how many misses are left?"""
    agreement = _agreement(world)
    versions = f"/agreements/{agreement['id']}/versions"
    made = world.api("POST", versions, {"reason": "as agreed in the contract"})
    one = f"{versions}/{made['number']}"
    targets = {"acknowledged_within": 900, "acknowledged_percent": 99.0, "reason": "as agreed in the contract"}
    world.api("PATCH", one, targets, **{"If-Match": "*"})
    world.api("POST", f"{one}/activate", {"reason": "as agreed in the contract"}, **{"If-Match": "*"})
    _submitted(world, "SC-4718")
    levels = f"/agreements/{agreement['id']}/service-levels"
    until(lambda: any(one["due"] for one in world.api("GET", levels)["now"]), "it is counted")
    player.begin()
    player.go("Partners")
    player.type("[name=q]", agreement["partner"]["name"])
    player.enter()
    player.press(f"a.strong:has-text('{agreement['partner']['name']}')")
    player.sees("service-level")


def partner_portal(player: Player, world: World) -> None:
    """T19, of somebody of a partner: has my order come through, and here is our new certificate."""
    _submitted(world, "SC-4719")
    certificate = world.folder / "new.pem"
    certificate.write_text(FIXED, encoding="utf-8")
    player.begin()
    player.go("Messages")
    player.type("[name=q]", "SC-4719")
    player.enter()
    player.sees("td:has-text('Delivered')")
    player.go("Certificates")
    player.give("[name=file]", certificate)
    player.press("submit")
    player.sees(".alert-success")
    player.stop()
    (offer,) = world.api("GET", "/offered-certificates?state=waiting")["data"]
    if offer["offered_by"] != "pia":
        raise Failed(f"offered by {offer['offered_by']}")


def oldest_of_a_partner(player: Player, world: World) -> None:
    """T20: the oldest messages of one partner, whose name one knows."""
    agreement = _agreement(world)
    partner = agreement["partner"]
    wanted = world.api("GET", f"/messages?partner={partner['id']}&sort=created_at&limit=1")["data"][0]["id"]
    player.begin()
    player.go("Messages")
    player.press("filters-open")
    player.type("partner", partner["name"])
    player.enter()
    player.press("window-all")
    player.press("thead a:has-text('Time')")
    player.sees(f"tbody tr:first-child#row-{wanted}")


def read_in_french(player: Player, world: World) -> None:
    """T21: the console in French, and which pairs are paused."""
    player.begin()
    player.press("summary:has(.menu-name)")
    player.press("preferences")
    player.tick("language-fr")
    player.press("submit")
    player.sees("html[lang=fr]")
    player.go("Paires")
    player.sees(".state:has-text('En pause')")
    player.stop()
    player.page.goto(f"{world.hub.url}/preferences/")
    player.find("language-browser").check()
    player.find("submit").click()
