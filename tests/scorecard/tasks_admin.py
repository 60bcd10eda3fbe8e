"""Tasks of admins: T9, T12."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import re
import subprocess
from typing import Any
from urllib.parse import quote

from rmhub.hubs import BASE
from tests.scorecard.player import Failed, Player, until
from tests.scorecard.stage import World
from tests.worlds.ux.newcomer import BUNDLE, ZEPHYR
from tests.worlds.ux.plan import ORDERS, SECRET

AGREEMENT = "tpa:ux:p20"  # of a partner without trouble


def onboard(player: Player, world: World) -> None:
    """T9: onboard partner Z from a bundle, test, activate."""
    player.go("Partners")
    player.press("partner-new")
    player.give("bundle-file", world.folder / BUNDLE)
    player.press("start-bundle-do")
    player.press("go-on")
    player.sees("[name=outbound_kind]")
    player.tick("[name=outbound_kind][value=basic]")
    player.type("[name=outbound_username]", "nordlys")
    player.type("[name=secret]", SECRET)
    player.tick("[name=inbound_kind][value=basic]")
    player.type("[name=inbound_username]", "zephyr")
    player.press("go-on")
    player.sees("[name=tpa_id]")
    player.press("go-on")
    player.press("test-run")
    player.sees("[data-testid=bench-verdict][data-state=ok]")
    player.press("go-on")
    player.type("[name=reason]", "Go-live of Zephyr")
    player.press("activate")
    # What is shown once is told to the partner, whose server shows it from now on.
    world.partners("/control", {"secrets": {"zephyr": player.read("secret")}})
    player.stop()
    active = world.api("GET", f"/agreements?q={quote(ZEPHYR)}&state=active")["data"]
    if not active:
        raise Failed("the agreement is not active")
    if not any(one["ok"] for one in world.api("GET", f"/test-reports?agreement={active[0]['id']}")["data"]):
        raise Failed("no report of a test that went well is kept")
    made = world.api("POST", "/messages", _document(ZEPHYR), **{"Idempotency-Key": '"zephyr-1"'})
    until(lambda: world.api("GET", f"/messages/{made['id']}")["state"] == "delivered", "the first message arrives")


def integrate(player: Player, world: World) -> None:
    """T12: a token that may only submit; a document by curl, and again; a webhook; a refusal that names the scope."""
    player.go("API tokens")
    player.press("token-new")
    player.type("[name=name]", "ERP")
    player.tick("[data-testid='scope-messages:write']")
    player.press("submit")
    token = player.read("secret")
    submit, again, refused, second = (_adapted(block) for block in _blocks()[1:])
    first, repeated = _curl(world, token, submit), _curl(world, token, again)
    if (first[0], repeated[0]) != (202, 202) or first[1]["id"] != repeated[1]["id"]:
        raise Failed(f"submitted: {first[0]}, again: {repeated[0]}")
    if "idempotent-replayed: true" not in repeated[2].lower():
        raise Failed("the second answer does not say that it is a replay")
    no = _curl(world, token, refused)
    if no[0] != 403 or no[1].get("required_scope") != "pairs:operate":
        raise Failed(f"resume is answered {no[0]}, {no[1]}")
    player.press("webhook-new")
    player.type("url", f"{world.partner}/hook")
    player.press("submit")
    secret = player.read("secret")
    player.press("a:text-is('Done')")
    player.press("verb-test")
    until(lambda: bool(world.partners("/hooks")), "the test event comes")
    other = _curl(world, token, second)
    mine = f"the webhook comes for {other[1]['id']} (seen: {len(world.partners('/hooks'))})"
    until(lambda: bool(_hooks(world, other[1]["id"])), mine)
    player.stop()
    for hook in (world.partners("/hooks")[0], _hooks(world, other[1]["id"])[0]):
        _verify(hook, secret)
    name = world.api("GET", f"/messages/{first[1]['id']}")["message_id"]
    until(lambda: bool(world.partners(f"/seen?message_id={quote(name)}")), "the document arrives")
    if len(world.partners(f"/seen?message_id={quote(name)}")) != 1:
        raise Failed("the document arrived more than once")


def _verify(hook: dict[str, Any], secret: str) -> None:
    """Standard Webhooks: the HMAC-SHA256 of id.timestamp.body. Raises Failed."""
    headers = hook["headers"]
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.{hook['body']}"
    key = base64.b64decode(secret.removeprefix("whsec_"))
    wanted = "v1," + base64.b64encode(hmac.new(key, signed.encode(), hashlib.sha256).digest()).decode()
    if wanted not in headers["webhook-signature"].split():
        raise Failed("the signature does not verify")


def _hooks(world: World, message: str) -> list[dict[str, Any]]:
    return [one for one in world.partners("/hooks") if json.loads(one["body"])["data"].get("message") == message]


def _document(agreement: str) -> dict[str, Any]:
    return {
        "agreement": agreement,
        "service": ORDERS,
        "action": "Order",
        "payloads": [{"content_base64": "PE9yZGVyLz4=", "content_type": "application/xml"}],
    }


def _blocks() -> list[str]:
    """The tutorial's commands."""
    return re.findall(r"^```sh\n(.*?)^```$", (BASE / "docs" / "tutorial.md").read_text(), re.MULTILINE | re.DOTALL)


def _adapted(block: str) -> str:
    """A command of the tutorial, for an agreement of this world."""
    return re.sub(r"agreement=\S+ -F service=\S+", f"agreement={AGREEMENT} -F service={ORDERS}", block)


def _curl(world: World, token: str, block: str) -> tuple[int, Any, str]:
    """(status, JSON, head) of a request that the tutorial writes."""
    text = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block],
        cwd=world.folder,
        env={**os.environ, "HUB": world.hub.url, "TOKEN": token},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    head, _, body = text.replace("\r\n", "\n").partition("\n\n")
    return int(head.split()[1]), json.loads(body), head
