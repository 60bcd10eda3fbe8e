"""Tells people of what happens, as the rules say: reads the event feed, folds what repeats, sends, and tries again.

Reading: one process at a time, from where the cursor stands. What a rule's window folds is counted and not sent.
Sending: claim (commit), talk (no transaction), record (commit); a mail keeps its Message-ID over all attempts.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet

from messaging import causes, mailing
from messaging.choices import IncidentState, NotificationChannel, NotificationState, Severity
from messaging.journal import audit
from messaging.journal.audit import Actor
from messaging.models import (
    Event,
    Incident,
    Notification,
    NotificationCursor,
    NotificationRule,
    Pair,
    WebhookDelivery,
    feed,
)
from messaging.models.base import existing
from messaging.models.bulk import bulk_set
from messaging.models.feed import Position
from messaging.notifications.services import channels, webhooks
from messaging.notifications.services import texts as notification_texts
from messaging.notifications.services.texts import Happening
from partners.models import Party
from partners.secrets import SecretUnreadable, decrypt
from rmhub import clock
from rmhub.ids import BadPublicId, floor_id, read_public_id
from rmhub.postgresql.base import give_back

log = logging.getLogger(__name__)

SCHEDULE = (60, 300, 1800, 7200, 21_600)  # seconds before attempt 2, 3 ...
KEPT = timedelta(days=90)
_RANK = {severity: rank for rank, severity in enumerate(Severity.values)}
_READ_AT_ONCE = 500
_ROUNDS = 20
_CLAIM = 8
_SENDERS = 4
_LEASE = timedelta(seconds=300)


def notify_due() -> tuple[int, int]:
    """One round: what is new in the feed, what nobody has taken, then what is due. Returns how many were made, and how
    many were tried.
    """
    made = read_feed() + escalate_due()
    return made, send_due()


# ---- reading the feed


def read_feed() -> int:
    """Makes notifications of what has happened since the last look. Returns how many."""
    made = 0
    for _ in range(_ROUNDS):
        count, more = _read_once()
        made += count
        if not more:
            break
    return made


def _read_once() -> tuple[int, bool]:
    with transaction.atomic():
        cursor = NotificationCursor.objects.select_for_update(skip_locked=True).filter(pk=1).first()
        if cursor is None:  # nothing was read so far, or another process is at it
            end = feed.latest()
            begin = NotificationCursor(id=1, xid=end.xid, event_id=end.id)
            NotificationCursor.objects.bulk_create([begin], ignore_conflicts=True)
            return 0, False
        rules = list(NotificationRule.objects.filter(enabled=True).select_related("group", "endpoint", "escalate_to"))
        at = Position(cursor.xid, cursor.event_id)
        if feed.is_ahead(at):
            _move(cursor, feed.latest())
            return 0, False
        if not rules:
            _move(cursor, max(at, feed.latest()))
            return 0, False
        wanted = sorted({kind for rule in rules for kind in rule.events})
        page = feed.read_types(after=at, types=wanted, limit=_READ_AT_ONCE)
        made = _tell(_happenings(page.events), rules)
        _move(cursor, page.position)
        return made, page.more


def _move(cursor: NotificationCursor, to: Position) -> None:
    if (cursor.xid, cursor.event_id) != (to.xid, to.id):
        cursor.xid, cursor.event_id = to.xid, to.id
        cursor.save(update_fields=["xid", "event_id"])


def _happenings(found: Sequence[Event]) -> list[Happening]:
    """The events with their pairs and incidents: two queries for all of them."""
    pairs = {
        pair.pk: pair
        for pair in Pair.objects.select_related("partner").filter(pk__in={one.pair_id for one in found if one.pair_id})
    }
    named = {one.pk: _incident_id(one) for one in found}
    incidents = {
        incident.pk: incident
        for incident in Incident.objects.select_related("trigger").filter(pk__in={key for key in named.values() if key})
    }
    made = []
    for one in found:
        key = named[one.pk]
        incident = incidents.get(key) if key is not None else None
        cause = str(one.data.get("cause") or (incident.cause if incident is not None else ""))
        made.append(Happening(one, pairs.get(one.pair_id) if one.pair_id else None, incident, cause))
    return made


def _incident_id(event: Event) -> uuid.UUID | None:
    try:
        return read_public_id("inc", str(event.data.get("incident", "")))
    except BadPublicId:
        return None


def _tell(happenings: Sequence[Happening], rules: Sequence[NotificationRule]) -> int:
    members = _members(rules)
    newest: dict[tuple[uuid.UUID, str], Notification | None] = {}
    made = 0
    for happening in happenings:
        for rule in rules:
            if not _matches(rule, happening, members):
                continue
            place = (rule.pk, happening.key)
            if place not in newest:
                known = Notification.objects.filter(rule=rule, key=happening.key).select_for_update()
                newest[place] = known.order_by("-id").first()
            last = newest[place]
            if last is not None and happening.event.at < last.created_at + timedelta(seconds=rule.window):
                last.folded += 1
                last.save(update_fields=["folded"])
                continue
            newest[place] = _make(rule, happening, last.folded if last is not None else 0)
            made += 1
    return made


def _members(rules: Sequence[NotificationRule]) -> dict[uuid.UUID, frozenset[uuid.UUID]]:
    """Group -> its partners."""
    groups = {rule.group_id for rule in rules if rule.group_id is not None}
    rows = Party.groups.through.objects.filter(partnergroup__in=groups).values_list("partnergroup_id", "party_id")
    found: dict[uuid.UUID, set[uuid.UUID]] = {group: set() for group in groups}
    for group, party in rows if groups else ():
        found[group].add(party)
    return {group: frozenset(parties) for group, parties in found.items()}


def _matches(rule: NotificationRule, happening: Happening, members: dict[uuid.UUID, frozenset[uuid.UUID]]) -> bool:
    event, incident = happening.event, happening.incident
    if event.type not in rule.events:
        return False
    if rule.causes and happening.cause not in rule.causes:
        return False
    if _RANK[happening.severity] < _RANK[rule.least]:
        return False
    if rule.group_id is not None:
        partner = happening.pair.partner_id if happening.pair is not None else None
        if partner not in members[rule.group_id]:
            return False
    # Of one trouble people are told once: by the incident that this one hangs on.
    if incident is not None and event.data.get("part_of"):
        return False
    # Whoever put it off does not want to hear of it; that it is over, and that it was put off, are worth telling.
    put_off = incident is not None and incident.snoozed_until is not None and incident.snoozed_until > clock.now()
    return not put_off or event.type in ("incident.resolved", "incident.snoozed")


def _make(rule: NotificationRule, happening: Happening, folded_before: int) -> Notification:
    now = clock.now()
    incident = happening.incident
    one = Notification(
        rule=rule,
        incident=incident,
        key=happening.key,
        due_at=due_of(rule, happening.severity, now),
        created_at=happening.event.at,
        **notification_texts.of(happening, rule, folded_before=folded_before),
    )
    if incident is not None and happening.event.type == "incident.opened":
        one.escalates_at = _escalates(rule, now)
    if incident is not None and rule.quiet_from is not None and happening.event.type == "incident.resolved":
        # What began and ended in quiet hours is nobody's business any more.
        held = Notification.objects.filter(rule=rule, incident=incident, due_at__gt=now, attempts=0)
        if held.update(state=NotificationState.DROPPED, due_at=None):
            one.state, one.due_at = NotificationState.DROPPED, None
    one.save(force_insert=True)
    return one


def _escalates(rule: NotificationRule, now: datetime) -> datetime | None:
    if not rule.escalate_after or rule.escalate_to_id is None:
        return None
    return now + timedelta(seconds=rule.escalate_after)


def due_of(rule: NotificationRule, severity: str, now: datetime) -> datetime:
    """When something of this severity is sent: now, or at the end of the rule's quiet hours."""
    if rule.quiet_from is None or rule.quiet_to is None or severity == Severity.CRITICAL:
        return now
    zone = ZoneInfo(rule.quiet_zone)
    local = now.astimezone(zone)
    for day in (local.date() - timedelta(days=1), local.date()):
        begin = datetime.combine(day, rule.quiet_from, zone)
        overnight = timedelta(days=rule.quiet_to <= rule.quiet_from)
        end = datetime.combine(day + overnight, rule.quiet_to, zone)
        if begin <= local < end:
            return end.astimezone(UTC)
    return now


def escalate_due() -> int:
    """Notifies the next rule of what nobody has acknowledged in time. Returns how many were made."""
    now = clock.now()
    with transaction.atomic():
        due = Notification.objects.filter(escalates_at__lte=now).select_related("rule__escalate_to", "incident__pair")
        rows = list(due.select_for_update(skip_locked=True, of=("self",)).order_by("escalates_at")[:_READ_AT_ONCE])
        made = 0
        for first in rows:
            incident, rule = first.incident, first.rule.escalate_to
            first.escalates_at = None
            snoozed = incident is not None and incident.snoozed_until is not None and incident.snoozed_until > now
            if incident is None or incident.state != IncidentState.OPEN or snoozed or rule is None or not rule.enabled:
                continue
            severity = causes.lookup(incident.cause).severity
            Notification.objects.create(
                rule=rule,
                incident=incident,
                key=f"escalated|{incident.public_id}",
                due_at=due_of(rule, severity, now),
                escalates_at=_escalates(rule, now),
                created_at=now,
                **notification_texts.of_escalation(rule, first),
            )
            made += 1
        bulk_set(rows, ("escalates_at",))
    return made


# ---- sending


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one attempt. `final`: trying again is of no use."""

    error: str = ""
    final: bool = False


def send_due() -> int:
    """Sends what is due, several at a time. Returns how many were tried."""
    tried = 0
    due = Notification.objects.filter(rule__enabled=True).select_related("rule__endpoint")
    with ThreadPoolExecutor(_SENDERS, thread_name_prefix="notify") as pool:
        claimed = webhooks.claim(due, _LEASE, _CLAIM)
        while claimed:
            give_back()
            tried += len(claimed)
            claimed = _record(list(zip(claimed, pool.map(talk, claimed), strict=True)), due)
    return tried


def rule_test(*, rule_id: uuid.UUID, actor: Actor) -> Notification:
    """Sends one test by a rule now, and returns what came of it. It is not tried again. Raises NotFound."""
    now = clock.now()
    with transaction.atomic():
        rule = existing(NotificationRule.objects.select_related("endpoint"), rule_id)
        one = Notification.objects.create(
            rule=rule,
            key=f"test|{now.timestamp()}",
            state=NotificationState.FAILED,  # until it is known better
            attempts=1,
            last_error="The hub stopped before an answer came.",
            created_at=now,
            **notification_texts.of_test(rule, actor.name, now),
        )
        audit.record(actor, "notification_rule.test", rule, after={"notification": one.public_id})
    give_back()
    outcome = talk(one)
    one.last_error = outcome.error[:255]
    if not outcome.error:
        one.state, one.sent_at = NotificationState.SENT, clock.now()
    one.save(update_fields=["state", "sent_at", "last_error"])
    return one


def talk(one: Notification) -> Outcome:
    """Sends one notification; without the database, for it may run in a thread of its own. Never raises."""
    if one.rule.channel == NotificationChannel.WEBHOOK:
        return _post(one)
    if one.rule.channel == NotificationChannel.MAIL:
        return _mail(one)
    return _alert(one)


def drop_old(now: datetime) -> int:
    """Removes what was told more than 90 days ago. Returns how many went."""
    old = Notification.objects.filter(id__lt=floor_id(now - KEPT), due_at=None, created_at__lt=now - KEPT)
    dropped, _ = old.delete()
    return dropped


def _record(outcomes: Sequence[tuple[Notification, Outcome]], due: QuerySet[Notification]) -> list[Notification]:
    """Writes what became of claimed ones, and claims those of `due` that come next.

    What was claimed again or deleted meanwhile is not touched.
    """
    now = clock.now()
    with transaction.atomic(durable=True):
        mine = Notification.objects.filter(pk__in=[one.pk for one, _ in outcomes], due_at__isnull=False)
        attempts = dict(mine.order_by("pk").select_for_update().values_list("pk", "attempts"))
        written = []
        for one, outcome in outcomes:
            if attempts.get(one.pk) == one.attempts:
                _apply(one, outcome, now)
                written.append(one)
        bulk_set(written, ("state", "due_at", "sent_at", "last_error"))
        return webhooks.claim_next(due, _LEASE, _CLAIM)


def _apply(one: Notification, outcome: Outcome, now: datetime) -> None:
    one.last_error = outcome.error[:255]
    if not outcome.error:
        one.state, one.due_at, one.sent_at = NotificationState.SENT, None, now
    elif outcome.final or one.attempts > len(SCHEDULE):
        one.state, one.due_at = NotificationState.FAILED, None
        log.error(
            "notification given up",
            extra={"action": "notification_failed", "rule": one.rule.name, "error": one.last_error},
        )
    else:
        one.due_at = now + timedelta(seconds=SCHEDULE[one.attempts - 1])


def _post(one: Notification) -> Outcome:
    endpoint = one.rule.endpoint
    if endpoint is None:
        return Outcome("The rule has no webhook endpoint any more.", final=True)
    if not endpoint.enabled:
        return Outcome("The webhook endpoint is switched off.")
    answer = webhooks.post(WebhookDelivery(id=one.pk, endpoint=endpoint, body=one.data))
    if answer.status is not None and 200 <= answer.status < 300:
        return Outcome()
    return Outcome(answer.error or f"The endpoint answered {answer.status}.", final=answer.status == 410)


def _alert(one: Notification) -> Outcome:
    rule, event = one.rule, one.data
    try:
        secret = decrypt(bytes(rule.secret_encrypted))
    except SecretUnreadable:
        return Outcome("The secret of this rule cannot be decrypted: restore the key, or enter the secret again.")
    facts = event["data"]
    told = facts["notification"]
    message = channels.Message(
        subject=one.subject,
        body=one.body,
        link=told["link"],
        alert=str(facts.get("incident") or one.key),
        event=event["type"],
        severity=told["severity"],
        source=settings.RMHUB_NAME,
        data={name: facts[name] for name in ("incident", "number", "pair", "cause", "detail") if facts.get(name)},
    )
    asked = channels.request(rule.channel, message, secret=secret, address=rule.address)
    answer = webhooks.send(asked.url, asked.body, asked.headers)
    if answer.status is not None and 200 <= answer.status < 300:
        return Outcome()
    name = rule.get_channel_display()
    # Too many requests come through later, and so does what their server could not do now.
    final = answer.status is not None and 400 <= answer.status < 500 and answer.status not in (408, 429)
    return Outcome(answer.error or f"{name} answered {answer.status}.", final=final)


def _mail(one: Notification) -> Outcome:
    headers = {"Message-ID": f"<{one.public_id}@{settings.RMHUB_SMTP_NAME}>"}
    return Outcome(mailing.send(one.rule.recipients, one.subject, one.body, headers))
