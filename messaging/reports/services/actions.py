"""What a person makes of a report: incidents of findings, and a draft of an agreement of advised times."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.conf import settings
from django.db import transaction
from django.db.models import Count, QuerySet
from django.utils.translation import gettext as _

from messaging.causes.reports import CAUSE_OF_KIND, CAUSE_OF_VERDICT
from messaging.choices import IncidentState
from messaging.exceptions import InvalidSubmission, NotFound, WrongState
from messaging.journal import audit, events, incidents
from messaging.journal.audit import Actor
from messaging.models import (
    AuditFinding,
    Incident,
    Message,
    Pair,
    PartnerLog,
    PipelineRun,
    PublishedReport,
    ReconciliationFinding,
    TimingAdvice,
)
from messaging.models.base import existing
from messaging.onboarding.services import changing as onboarding
from messaging.report_choices import NOTICES, PipelineJob, TimingOption
from partners.fields import duration
from partners.models import Agreement, AgreementVersion
from partners.services.writing import writing
from rmhub import clock
from rmhub.ids import public_id, read_public_id
from rmhub.language import number

SHOWN_IDS = 20
MAX_INCIDENTS = 500
AUDIT_KINDS = tuple(kind for kind in CAUSE_OF_KIND if kind not in NOTICES)
VERDICTS = tuple(CAUSE_OF_VERDICT)


@dataclass(frozen=True, slots=True)
class Opened:
    """`incidents`: one for each pair and cause. `known` of them were there before, from this same run."""

    run: PipelineRun
    incidents: tuple[Incident, ...]
    known: int


@dataclass(frozen=True, slots=True)
class _Group:
    """Findings of one cause on one pair; `messages` in all."""

    pair_id: uuid.UUID | None
    cause: str
    filters: Mapping[str, str]
    messages: int
    message_ids: Sequence[str]
    about: str = ""


def log_incidents(
    *, log_id: uuid.UUID, actor: Actor, reason: str, verdicts: Iterable[str] = (), run: uuid.UUID | None = None
) -> Opened:
    """Makes incidents of what the comparison of a partner's log found; `verdicts`: only of these.

    `run`: the run that the person looked at. Raises NotFound, InvalidSubmission (no reason, no findings, too many),
    WrongState when the log was not compared yet, or again since then.
    """
    log = existing(PartnerLog.objects.select_related("party"), log_id)
    wanted = _chosen("verdicts", verdicts, VERDICTS)
    shown = _published(PipelineJob.RECONCILE, log.public_id, run)
    found = ReconciliationFinding.objects.filter(run=shown, verdict__in=wanted)
    return _open(shown, _of_reconciliation(found, log), log, actor, reason)


def audit_incidents(*, actor: Actor, reason: str, kinds: Iterable[str] = (), run: uuid.UUID | None = None) -> Opened:
    """Makes incidents of the broken promises that the audit found; `kinds`: only of these.

    `run`: the run that the person looked at. Raises InvalidSubmission (no reason, no findings, too many), WrongState
    when there was no audit yet, or another one since then.
    """
    wanted = _chosen("kinds", kinds, AUDIT_KINDS)
    shown = _published(PipelineJob.AUDIT, "", run)
    found = AuditFinding.objects.filter(run=shown, violation=True, kind__in=wanted)
    return _open(shown, _of_audit(found), shown, actor, reason)


def timing_draft(
    *, agreement_id: uuid.UUID, actor: Actor, reason: str = "", run: uuid.UUID | None = None
) -> AgreementVersion:
    """A draft of the agreement's next version with the Timeout, Retries and RetryInterval that the report proposes.

    `run`: the run that the person looked at. The draft changes nothing until somebody activates it. Raises NotFound,
    WrongState: no advice, another one since then, nothing to change, or a draft that is there already.
    """
    shown = _published(PipelineJob.TIMING, "", run)
    advice = TimingAdvice.objects.filter(run=shown, agreement_id=agreement_id, option=TimingOption.PROPOSED).first()
    agreement = Agreement.objects.filter(pk=agreement_id).first()
    if agreement is None:
        raise NotFound(_("There is no agreement {agreement}.").format(agreement=public_id("agr", agreement_id)))
    if advice is None:
        raise WrongState(
            _(
                "The timing advice of {run} proposes nothing for {agreement}: too few of its messages were "
                "acknowledged in the range. Run it over a longer one."
            ).format(run=shown.public_id, agreement=agreement),
            state="",
        )
    terms: dict[str, Any] = {
        "timeout": advice.timeout,
        "retries": advice.retries,
        "retry_interval": advice.retry_interval,
    }
    with writing():
        latest = AgreementVersion.objects.filter(agreement=agreement).order_by("-number").first()
        if latest is not None and latest.state == "draft":
            raise WrongState(
                _(
                    "Version {version} of {agreement} is a draft already: activate or discard it first, or enter "
                    "Timeout {timeout}, Retries {retries} and RetryInterval {retry_interval} there."
                ).format(
                    version=latest.number,
                    agreement=agreement,
                    timeout=duration(advice.timeout),
                    retries=advice.retries,
                    retry_interval=duration(advice.retry_interval),
                ),
                state=latest.state,
            )
        if latest is not None and all(getattr(latest, name) == value for name, value in terms.items()):
            raise WrongState(
                _("Version {version} of {agreement} has these times already: there is nothing to change.").format(
                    version=latest.number, agreement=agreement
                ),
                state=latest.state,
            )
        made = onboarding.version_new(
            agreement_id=agreement_id, actor=actor, reason=reason, note=_note(shown, latest, advice)
        )
        return onboarding.version_edit(
            agreement_id=agreement_id, number=made.number, actor=actor, reason=reason, **terms
        )


def _note(run: PipelineRun, latest: AgreementVersion | None, advice: TimingAdvice) -> str:
    def change(name: str, before: str, after: str) -> str:
        return f"{name} {before} to {after}" if before != after else f"{name} stays {after}"

    if latest is None:
        return f"Timing advice of {run.public_id}"
    said = (
        change("Timeout", duration(latest.timeout), duration(advice.timeout)),
        change("Retries", str(latest.retries), str(advice.retries)),
        change("RetryInterval", duration(latest.retry_interval), duration(advice.retry_interval)),
    )
    return f"Timing advice of {run.public_id}: {', '.join(said)}."[:255]


def _published(job: PipelineJob, scope: str, run: uuid.UUID | None) -> PipelineRun:
    """The run that readers see; it must be the one that the person saw."""
    shown = PublishedReport.objects.select_related("run").filter(job=job, scope=scope).first()
    if shown is None:
        raise WrongState(_("{job}: there is no result yet. Run it first.").format(job=job.label), state="")
    if run is not None and shown.run_id != run:
        raise WrongState(
            _("{job}: {run} has published newer results than those you looked at. Look again.").format(
                job=job.label, run=shown.run.public_id
            ),
            state=shown.run.state,
        )
    return shown.run


def _chosen(field: str, given: Iterable[str], known: Sequence[str]) -> tuple[str, ...]:
    wanted = tuple(dict.fromkeys(given))
    if strange := [one for one in wanted if one not in known]:
        said = _("{value} is not one of {values}.").format(value=repr(strange[0][:60]), values=", ".join(known))
        raise InvalidSubmission({field: [said]})
    return wanted or tuple(known)


def _of_reconciliation(found: QuerySet[ReconciliationFinding], log: PartnerLog) -> list[_Group]:
    """By pair and verdict. What only the partner knows is put on their only pair of that direction, if there is one."""
    only = _only_pairs(log)
    merged: dict[tuple[uuid.UUID | None, str], list[tuple[Any, int]]] = {}
    counted = found.order_by().values_list("pair_id", "direction", "verdict").annotate(Count("id"))
    for pair_id, direction, verdict, count in counted:
        place = pair_id or only.get(direction)
        merged.setdefault((place, verdict), []).append(((pair_id, direction), count))
    groups = []
    for (place, verdict), parts in sorted(merged.items(), key=str):
        ids: list[str] = []
        for (pair_id, direction), __ in parts:
            rows = found.filter(pair_id=pair_id, direction=direction, verdict=verdict).order_by("id")
            ids += rows.values_list("message_id", flat=True)[: SHOWN_IDS - len(ids)]
        total = sum(count for _, count in parts)
        about = f"{log.party.name}'s log {log.filename} ({log.public_id})"
        filters = {"scope": log.public_id, "table": "findings", "verdict": verdict}
        groups.append(_Group(place, CAUSE_OF_VERDICT[verdict], filters, total, ids, about))
    return groups


def _only_pairs(log: PartnerLog) -> dict[str, uuid.UUID]:
    known: dict[str, list[uuid.UUID]] = {}
    for pair_id, direction in Pair.objects.filter(partner=log.party_id).values_list("id", "direction"):
        known.setdefault(direction, []).append(pair_id)
    return {direction: ids[0] for direction, ids in known.items() if len(ids) == 1}


def _of_audit(found: QuerySet[AuditFinding]) -> list[_Group]:
    """By pair and kind."""
    merged: dict[tuple[uuid.UUID | None, str], list[AuditFinding]] = {}
    counts: dict[tuple[uuid.UUID | None, str], int] = {}
    for finding in found.order_by("id").iterator(chunk_size=1000):
        key = (finding.pair_id, finding.kind)
        counts[key] = counts.get(key, 0) + finding.count
        if len(merged.setdefault(key, [])) < SHOWN_IDS:
            merged[key].append(finding)
    groups = []
    for (pair_id, kind), findings in sorted(merged.items(), key=lambda one: str(one[0])):
        ids = list(dict.fromkeys(one for finding in findings for one in finding.message_ids))[:SHOWN_IDS]
        filters = {"table": "findings", "kind": kind}
        if findings[0].pair:
            filters["pair"] = findings[0].pair
        about = next((finding.detail for finding in findings if finding.detail), "")
        groups.append(_Group(pair_id, CAUSE_OF_KIND[kind], filters, counts[pair_id, kind], ids, about))
    return groups


def _open(
    run: PipelineRun, groups: Sequence[_Group], target: PartnerLog | PipelineRun, actor: Actor, reason: str
) -> Opened:
    audit.require_reason(reason)
    if not groups:
        raise InvalidSubmission(
            {"__all__": [_("There is nothing among the findings that an incident could be created for.")]}
        )
    if len(groups) > MAX_INCIDENTS:
        said = _("That would be {count} incidents, and {most} are the most: choose a kind.")
        raise InvalidSubmission({"__all__": [said.format(count=number(len(groups)), most=MAX_INCIDENTS)]})
    now = clock.now()
    with transaction.atomic():
        pairs = Pair.locked([group.pair_id for group in groups if group.pair_id is not None])
        opened, known = [], 0
        written: list[Any] = []
        for group in groups:
            pair = pairs.get(group.pair_id) if group.pair_id is not None else None
            # What a click before this one made of the same findings.
            same = Incident.objects.filter(pair=pair, trigger=None, cause=group.cause, detail__contains=run.public_id)
            before = same.exclude(state=IncidentState.RESOLVED).first()
            if before is not None:
                opened.append(before)
                known += 1
                continue
            incident, added = incidents.incident_open(
                pair=pair, cause=group.cause, now=now, detail=_detail(run, group), message_pk=_message(pair, group)
            )
            opened.append(incident)
            written += added
        events.write(written)
        after = {"run": run.public_id, "incidents": [str(incident) for incident in opened], "known": known}
        audit.record(actor, "report.open_incidents", target, reason=reason, after=after)
    return Opened(run, tuple(opened), known)


def _detail(run: PipelineRun, group: _Group) -> str:
    shown = ", ".join(group.message_ids)
    more = f" and {group.messages - len(group.message_ids):,} more" if group.messages > len(group.message_ids) else ""
    listed = f": {shown}{more}" if shown else ""
    query = urlencode({**group.filters, "run": run.public_id})
    about = f" {group.about}." if group.about else ""
    link = f"{settings.RMHUB_PUBLIC_URL}/reports/{run.job}/?{query}"
    return f"{group.messages:,} found{listed}.{about} All of them: {link}"


def _message(pair: Pair | None, group: _Group) -> uuid.UUID | None:
    """The first of the messages that the store still has."""
    if pair is None or not group.message_ids:
        return None
    known = Message.objects.filter(pair=pair, message_id__in=group.message_ids)
    return known.order_by("id").values_list("id", flat=True).first()


def run_id_of(text: str) -> uuid.UUID | None:
    """The run that a form or body names; None when it names none. Raises BadPublicId."""
    return read_public_id("run", text) if text else None
