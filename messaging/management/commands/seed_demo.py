"""`manage.py seed_demo`: one side of the demo, in the database of this hub."""

from __future__ import annotations

import base64
import json
import sys
import time
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from messaging.demo import seeding
from messaging.management.worlds import world
from partners.choices import DOCUMENT_PROFILES, Profile
from rmhub import clock

_SECRETS = ("demo-partner-secret", "demo-partner-secret")


def _pem(line: str) -> str:
    """The PEM text of a line. Raises CommandError."""
    try:
        return base64.b64decode(line.strip(), validate=True).decode()
    except ValueError as error:
        raise CommandError(f"--signed needs two lines of Base64 on standard input: {error}", returncode=2) from error


class Command(BaseCommand):
    help = "Sets up the demo's parties, agreements, credentials, users and trigger. What exists is left alone."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--scale", choices=("small", "ux"), default="small", help="ux: a large world of its own")
        parser.add_argument("--messages", type=int, default=10_000_000, help="ux: messages of the past")
        parser.add_argument("--pairs", type=int, default=500, help="ux: pairs, two for each agreement")
        parser.add_argument("--partners", type=int, default=200, help="ux: partners")
        parser.add_argument("--partner-port", type=int, default=9100, help="ux: where demo_partner listens")
        parser.add_argument("--folder", default="", help="ux: certificates and facts.json; default var/ux")
        parser.add_argument("--side", choices=("buyer", "seller"), default="buyer", help="which organisation we are")
        parser.add_argument(
            "--address", default="http://127.0.0.1:8001", help="where the partner's bytes are really sent"
        )
        parser.add_argument(
            "--secrets",
            action="store_true",
            help="read two lines from standard input: the password that the partner shows us, and the one that we show",
        )
        parser.add_argument(
            "--signed",
            action="store_true",
            help="ebXML 2.0: read two lines more: our certificate with its key, and the partner's (PEM in Base64)",
        )
        parser.add_argument("--agreements", type=int, default=4)
        parser.add_argument(
            "--profile", choices=DOCUMENT_PROFILES, action="append", help="of the agreements; several take turns"
        )
        parser.add_argument("--ordered", action="store_true", help="repeatable profile: one message after the other")
        parser.add_argument("--application", default="", help="URL of an application that gets every document")
        parser.add_argument("--kind", choices=("http", "pull"), default="http", help="it is called, or pulls itself")
        parser.add_argument(
            "--resolver", action="store_true", help="the application's resolver decides what is in doubt"
        )
        parser.add_argument("--targets", action="store_true", help="the agreements promise service levels")
        for name, value in seeding.TERMS.items():
            parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=value)
        parser.add_argument("--chain", action="store_true", help="one hub of a chain: its plan is standard input, JSON")
        parser.add_argument("--atomic", action="store_true", help="the coordinator: its plan is standard input, JSON")
        parser.add_argument("--json", action="store_true", help="print new log-ins and an API token as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["scale"] == "ux":
            self._large(options)
            return
        if options["chain"]:
            self._chain(sys.stdin.read())
            return
        if options["atomic"]:
            self._atomic(sys.stdin.read())
            return
        buyer = options["side"] == "buyer"
        secret_in, secret_out = _SECRETS
        if options["secrets"]:
            secret_in, secret_out = (sys.stdin.readline().strip() for _ in range(2))
            if not secret_in or not secret_out:
                raise CommandError("--secrets needs two lines on standard input.", returncode=2)
        signers = [_pem(sys.stdin.readline()) for _ in range(2)] if options["signed"] else ["", ""]
        plan = seeding.Plan(
            own=seeding.BUYER if buyer else seeding.SELLER,
            partner=seeding.SELLER if buyer else seeding.BUYER,
            address=options["address"].rstrip("/"),
            secret_in=secret_in,
            secret_out=secret_out,
            agreements=options["agreements"],
            profiles=tuple(options["profile"] or (Profile.EBXML,)),
            ordered=options["ordered"],
            terms={name: options[name] for name in seeding.TERMS},
            targets=seeding.TARGETS if options["targets"] else {},
            signer=signers[0],
            partner_signer=signers[1],
        )
        seeding.seed(plan)
        made = seeding.people(plan.partner)
        secret = ""
        if options["application"]:
            url = options["application"].rstrip("/")
            secret = seeding.trigger(url, kind=options["kind"], resolver=options["resolver"])
        if options["json"]:
            scopes = ["messages:write", "messages:read", "pairs:read"]
            token = seeding.token("demo", scopes)
            taker = seeding.token("demo application", ["deliveries:take", "payloads:read"]) if secret else ""
            printed = {"users": made, "token": token, "trigger_secret": secret, "application_token": taker}
            self.stdout.write(json.dumps(printed))
            return
        self.stdout.write(f"{plan.own.name} and {plan.partner.name}: {plan.agreements} agreements.")
        for name, password in made.items():
            self.stdout.write(f"log-in {name} / {password}")
        if secret:
            self.stdout.write(f"{seeding.TRIGGER}: its secret is {secret}")

    def _large(self, options: dict[str, Any]) -> None:
        large, ux = world("ux.world"), world("ux.plan")
        partners, pairs = options["partners"], options["pairs"]
        if min(options["messages"], partners - len(ux.TROUBLES), pairs - 2 * len(ux.TROUBLES)) < 1:
            least = len(ux.TROUBLES) + 1
            raise CommandError(f"At least {least} partners, {2 * least} pairs and one message, please.", returncode=2)
        plan = ux.Plan(
            now=clock.now(),
            folder=Path(options["folder"] or settings.VAR_DIR / "ux"),
            partners=partners,
            pairs=pairs,
            messages=options["messages"],
            port=options["partner_port"],
        )
        begun = time.monotonic()
        try:
            facts = large.make(plan, lambda line: self.stderr.write(f"{time.monotonic() - begun:6.0f} s  {line}"))
        except ValueError as error:
            raise CommandError(str(error), returncode=2) from error
        if options["json"]:
            self.stdout.write(json.dumps(facts))
            return
        self.stdout.write(f"{partners} partners, {pairs} pairs, {plan.messages:,} messages and more.")
        self.stdout.write(f"Their side: manage.py demo_partner --folder {plan.folder} --hub http://127.0.0.1:8000")
        for name, role in large.everybody().items():
            self.stdout.write(f"log-in {name} / {large.PASSWORD}  ({role})")

    def _atomic(self, text: str) -> None:
        atomic_seeding = world("atomic_seeding")
        try:
            plan = atomic_seeding.read(text)
        except (ValueError, TypeError, KeyError) as error:
            raise CommandError(f"Standard input is not a plan of the coordinator: {error}", returncode=2) from error
        self.stdout.write(json.dumps({"secrets": atomic_seeding.seed(plan)}))

    def _chain(self, text: str) -> None:
        try:
            plan = world("chain").read_plan(text)
        except (ValueError, TypeError, KeyError) as error:
            raise CommandError(f"Standard input holds no plan of a hub: {error}", returncode=2) from error
        world("chain_seeding").seed_hop(plan)
        seeding.people()
        token = seeding.token("demo", ["messages:write", "messages:read", "pairs:read"])
        self.stdout.write(json.dumps({"token": token}))
