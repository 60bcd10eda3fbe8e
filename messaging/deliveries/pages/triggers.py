"""Triggers in the console: the list, the page, the form, and the secret that is shown once."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from functools import cached_property, partial
from typing import Any

from django import forms
from django.contrib import messages as notices
from django.core.exceptions import ValidationError
from django.core.validators import MinValueValidator
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_variables

from messaging import applications
from messaging.access.selectors import reach
from messaging.choices import Consult, ServiceKind, TriggerState
from messaging.console.access import actor, requires
from messaging.console.filters import Filter, bar, partner_of
from messaging.console.forms import MOST_CHOICES, AgreementField, Group, PartnerField, ReferenceField, SettingsForm
from messaging.console.rendering import dialog, keyset_page, page, posted, see_other
from messaging.console.resource import ListPage, Pages, order_of, sorting, table
from messaging.deliveries.pages import tables
from messaging.deliveries.resource import TRIGGERS, row_of
from messaging.deliveries.selectors import deliveries, in_doubt, triggers
from messaging.deliveries.selectors.triggers import TriggerRow
from messaging.deliveries.services import triggering
from messaging.deliveries.services.trigger_rules import SETTINGS
from messaging.models import Trigger
from messaging.overview.selectors import records
from messaging.pairs.selectors import screens
from rmhub import clock
from rmhub.ids import BadPublicId
from rmhub.language import gettext_lazy

_ONCE = "trigger_secret_form"


class DocumentsField(forms.CharField):
    """Services and actions, `service | action` a line. `known`: what partners may send, shown below."""

    widget = forms.Textarea
    known: Any = ()

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(f"{one['service']} | {one['action']}" for one in value) if isinstance(value, list) else value

    def to_python(self, value: Any) -> Any:
        found = []
        for number, line in enumerate(str(value or "").splitlines(), start=1):
            if not line.strip():
                continue
            service, bar, action = line.rpartition("|")
            if not bar:
                raise ValidationError(
                    _("Line {line}: write the service, a bar and the action, such as {example}.").format(
                        line=number, example="urn:orders | *"
                    )
                )
            found.append({"service": service.strip(), "action": action.strip()})
        return found


class StatusesField(forms.CharField):
    """HTTP statuses in a row."""

    def prepare_value(self, value: Any) -> Any:
        return ", ".join(map(str, value)) if isinstance(value, list) else value

    def to_python(self, value: Any) -> Any:
        try:
            return [int(part) for part in str(value or "").replace(",", " ").split()]
        except ValueError:
            raise ValidationError(_("HTTP statuses, such as 425, 429, 503.")) from None


def _setting(name: str) -> dict[str, Any]:
    """Label and help of a setting whose field stands in the form for the model's own."""
    of = Trigger._meta.get_field(name)
    return {"label": capfirst(of.verbose_name), "help_text": of.help_text}  # type: ignore[union-attr]


# What the model leaves to the names of its fields.
_LABELS: Mapping[str, str] = {
    "name": gettext_lazy("Name"),
    "agreement_id": gettext_lazy("Agreement"),
    "kind": gettext_lazy("Kind"),
    "member_of_id": gettext_lazy("Member of"),
    "detect_duplicates": gettext_lazy("Detect duplicates"),
    "resolver": gettext_lazy("Resolver"),
    "resolver_callable": gettext_lazy("Resolver callable"),
    "retry_until": gettext_lazy("Retry until"),
    "max_retries": gettext_lazy("Max retries"),
    "retry_interval": gettext_lazy("Retry interval"),
    "monitor": gettext_lazy("Monitor"),
    "monitor_callable": gettext_lazy("Monitor callable"),
}
_SERVICES = ServiceKind.HTTP.value, ServiceKind.CALLABLE.value
_PUSHED = ("kind", *_SERVICES, ServiceKind.ATOMIC.value)


class TriggerForm(SettingsForm):
    """The settings of a trigger. What belongs to a kind that is not chosen is not shown, and left out."""

    groups = (
        Group(gettext_lazy("Application"), ("name",)),
        Group(
            gettext_lazy("Which documents"),
            ("party_id", "agreement_id", "documents"),
            gettext_lazy("All of these must match; an empty field matches everything."),
        ),
        Group(
            gettext_lazy("Service"),
            (
                *("kind", "url", "callable_name", "member_of_id", "atomic_agreement_id", "timeout", "retry_statuses"),
                *("lease_seconds", "answers"),
            ),
            gettext_lazy("What processes the documents."),
        ),
        Group(
            gettext_lazy("Duplicates"),
            (
                *("detect_duplicates", "use_history", "history_ttl", "document_id_path"),
                *("resolver", "resolver_url", "resolver_callable", "resolver_failure"),
            ),
            gettext_lazy("The three steps of the decision: redelivery count, document history, resolver."),
        ),
        Group(
            gettext_lazy("When the service is not available"),
            ("retry_until", "max_retries", "retry_interval", "when_exhausted"),
            gettext_lazy("Only what certainly was not processed is retried. A service that ends with an error is not."),
        ),
        Group(gettext_lazy("Order"), ("ordered", "concurrency", "suspend_on_error")),
        Group(
            gettext_lazy("Resource monitor"),
            ("monitor", "monitor_url", "monitor_callable", "monitor_interval"),
            gettext_lazy("Asked while the trigger is suspended because of a failure; a positive answer resumes it."),
            folded=True,
        ),
        Group(gettext_lazy("Joins and silence"), ("join_type", "join_timeout", "silent_after"), folded=True),
    )
    note = gettext_lazy(
        "Documents that came before keep the deliveries that they have. A change is seen by every process within "
        "about a second."
    )
    placeholders = {"documents": "urn:orders | NewOrder", "url": "http://orders.internal:8080/documents"}
    only = {
        "url": ("kind", ServiceKind.HTTP),
        "callable_name": ("kind", ServiceKind.CALLABLE),
        "member_of_id": ("kind", *_SERVICES),
        "atomic_agreement_id": ("kind", ServiceKind.HTTP),
        "timeout": _PUSHED,
        "retry_statuses": ("kind", ServiceKind.HTTP),
        "lease_seconds": ("kind", ServiceKind.PULL),
        "answers": ("kind", *_SERVICES),
        "resolver_url": ("resolver", Consult.HTTP),
        "resolver_callable": ("resolver", Consult.CALLABLE),
        "retry_until": _PUSHED,
        "max_retries": _PUSHED,
        "retry_interval": _PUSHED,
        "suspend_on_error": ("ordered", "on"),
        "monitor_url": ("monitor", Consult.HTTP),
        "monitor_callable": ("monitor", Consult.CALLABLE),
        "monitor_interval": ("monitor", Consult.HTTP, Consult.CALLABLE),
    }
    # What is not shown is emptied, but for these, which stay as they are.
    stay = (
        *("timeout", "retry_statuses", "lease_seconds", "retry_until", "max_retries", "retry_interval"),
        "monitor_interval",
    )
    party_id = PartnerField(Trigger.party, blank=gettext_lazy("Every partner"))
    agreement_id = AgreementField(Trigger.agreement, blank=gettext_lazy("Every agreement"))
    documents = DocumentsField(  # type: ignore[call-arg]
        label=gettext_lazy("Services and actions"),
        help_text=gettext_lazy(
            "One a line: the service, a bar, the action. * stands for any action. Empty: every document."
        ),
        template_name="console/deliveries/documents_field.html",
    )
    callable_name = forms.ChoiceField(**_setting("callable_name"))
    member_of_id = ReferenceField(
        Trigger.member_of, prefix="trg", blank=gettext_lazy("None: it has documents of its own")
    )
    atomic_agreement_id = AgreementField(Trigger.atomic_agreement, blank=gettext_lazy("No agreement"))
    retry_statuses = StatusesField(**_setting("retry_statuses"))
    resolver_callable = forms.ChoiceField(**_setting("resolver_callable"))
    monitor_callable = forms.ChoiceField(**_setting("monitor_callable"))

    class Meta:
        model = Trigger
        fields = SETTINGS
        widgets = dict.fromkeys(
            ("kind", "resolver", "resolver_failure", "retry_until", "when_exhausted", "monitor", "join_type"),
            forms.RadioSelect,
        )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, field in self.fields.items():
            field.label = _LABELS.get(name, field.label)
            if isinstance(field, forms.BooleanField):
                field.widget.attrs["value"] = "on"
            if isinstance(field, forms.IntegerField):
                wanted = str(field.error_messages["invalid"])
                field.required, field.error_messages["required"] = True, wanted
                field.validators = [MinValueValidator(0, wanted)]
            if type(field) in (ReferenceField, forms.ChoiceField):
                field.choices = partial(self._offered, name)  # type: ignore[attr-defined]
        documents: Any = self.fields["documents"]
        documents.css, documents.known = " form-wide", triggers.known_documents

    @cached_property
    def _lists(self) -> dict[str, list[tuple[str, str]]]:
        """What can be chosen."""
        return {
            "member_of_id": [(one.public_id, one.name) for one in triggers.wholes()[:MOST_CHOICES]],
            "callable_name": _names(applications.SERVICES),
            "resolver_callable": _names(applications.RESOLVERS),
            "monitor_callable": _names(applications.MONITORS),
        }

    def _offered(self, name: str) -> list[tuple[str, str]]:
        choices = [("", getattr(self.fields[name], "blank", _("Choose one"))), *self._lists[name]]
        present = str(self[name].value() or "").replace("\x00", "")
        if present not in {value for value, __ in choices}:
            # Whoever changes something else must not take it away unawares.
            choices.append((present, _("{name} (not in the list any more)").format(name=present)))
        return choices

    def clean(self) -> Any:
        for name, (chooser, *values) in self.only.items():
            if self.data.get(chooser, "") not in values:
                self.errors.pop(name, None)
                self.cleaned_data.pop(name, None)
                if name not in self.stay:
                    self.cleaned_data[name] = self.fields[name].to_python("")
        return self.cleaned_data

    @property
    def settings(self) -> dict[str, Any]:
        return {name: self.cleaned_data[name] for name in SETTINGS if name in self.cleaned_data}

    def refuse(self, errors: Mapping[str, list[str]]) -> None:
        """The service names fields as the model does."""
        super().refuse({f"{name}_id" if f"{name}_id" in self.fields else name: said for name, said in errors.items()})


def _names(known: Iterable[str]) -> list[tuple[str, str]]:
    return [(name, name) for name in sorted(known)]


class TriggerPages(Pages):
    """Triggers are known by their names too, and listed by their states; a new one shows its secret."""

    def _list(self, request: HttpRequest) -> HttpResponse:
        """All triggers, the suspended ones first."""
        state = request.GET.get("state", "")
        filters = {
            "state": state if state in TriggerState.values else "",
            "q": request.GET.get("q", "").strip()[:120].replace("\x00", ""),
        }
        partner = partner_of(request)
        filters["partner"] = partner.reference
        states = (filters["state"],) if filters["state"] else ()
        found = triggers.triggers(state=states, q=filters["q"], concerns=partner.key)
        found = found.none() if partner.missing else found
        order = order_of(request, self.listing.orders)[1]
        context = keyset_page(request, "console.triggers", found, order=order, filters=filters)
        context["rows"] = [_described(row) for row in triggers.trigger_rows(context["rows"], clock.now())]
        counts = triggers.counts_by_state()
        context["table"] = table(
            self.listing.caption,
            sorting(request, self.listing.columns, self.listing.orders),
            context["rows"],
            about=lambda one: {"data-state": one["row"].trigger.state, "data-testid": "trigger-row"},
        )
        context["bar"] = bar(request, "triggers", self.listing.filters, filters, partner=partner)
        context |= {"page": self.listing, "filters": filters, "counts": counts, "total": sum(counts.values())}
        return self._answer(request, "console/deliveries/triggers.html", context, live="live-triggers")

    def _page(self, request: HttpRequest, reference: str) -> HttpResponse:
        try:
            reach.read_id("trg", reference)
        except BadPublicId:
            return see_other("console:trigger", self._one(reference).public_id)
        return super()._page(request, reference)

    def _blank(self, request: HttpRequest) -> SettingsForm:
        """From the page of an atomic trigger, for one more member of it."""
        return TriggerForm(initial={"member_of_id": request.GET.get("member_of", "")[:60].replace("\x00", "")})

    @sensitive_variables()
    def _made(self, request: HttpRequest, made: tuple[Trigger, str]) -> HttpResponse:
        trigger, secret = made
        return _shown_once(request, trigger, secret, made=True) if signs(trigger) else super()._made(request, trigger)


def _shown(trigger: Trigger) -> dict[str, Any]:
    now = clock.now()
    recent = list(deliveries.deliveries(trigger_id=trigger.pk).order_by("-id")[:15])
    return {
        **_described(row_of(trigger)),
        "groups": [
            (group, in_doubt.age(group.oldest_at, now)) for group in in_doubt.groups(now, trigger_id=trigger.pk)
        ],
        "recent": recent,
        "table": tables.deliveries(_("The newest documents of this trigger"), recent, tables.OF_TRIGGER),
        "policy": triggers.policy(trigger),
        "incidents": list(records.incidents(trigger_id=trigger.pk).order_by("-number")[:8]),
        "audit": screens.audit_of(trigger),
        "signs": signs(trigger),
        "members": list(trigger.members.all()),
    }


def _described(row: TriggerRow) -> dict[str, Any]:
    return {
        "row": row,
        "subscription": triggers.subscription(row.trigger),
        "target": triggers.target(row.trigger),
    }


LIST = ListPage(
    lead="",
    caption=gettext_lazy("Triggers"),
    columns=tables.TRIGGERS,
    filters=(
        Filter("q", gettext_lazy("Name, URL or callable contains"), kind="search"),
        Filter("partner", gettext_lazy("Partner"), kind="partner"),
        Filter("state", gettext_lazy("State"), kind="tab"),
    ),
    icon="bolt",
    none_yet=gettext_lazy("No trigger yet."),
    what_then=gettext_lazy(
        "Documents that partners send are stored, and no application gets them. Create a trigger to hand them to an "
        "application."
    ),
    orders=triggers.ORDERS,
)
PAGES = TriggerPages(
    resource=TRIGGERS,
    listing=LIST,
    form=TriggerForm,
    template="console/deliveries/trigger.html",
    shown=_shown,
    now=lambda trigger: row_of(trigger).diagnosis.headline,
    asking=gettext_lazy("{} {}"),
    made=gettext_lazy("takes documents from now on."),
)


@sensitive_variables("secret")
@requires("triggers:write", methods=("GET", "POST"))
def trigger_secret(request: HttpRequest, reference: str) -> HttpResponse:
    """The dialog; POST makes a new secret and shows it this once, on a page that no cache keeps."""
    trigger = triggers.trigger(reference)
    if request.method == "POST" and used_already(request, _ONCE):
        notices.error(
            request,
            _("This form was already submitted. A secret is shown only once; create another one if it is lost."),
        )
        return see_other("console:trigger", trigger.public_id)

    @sensitive_variables("secret")
    def do() -> HttpResponse:
        reason = posted(request, "reason")
        changed, secret = triggering.trigger_rotate_secret(trigger_id=trigger.pk, actor=actor(request), reason=reason)
        del request.session[_ONCE]
        return _shown_once(request, changed, secret, made=False)

    def shown() -> dict[str, Any]:
        back = reverse("console:trigger", args=[trigger.public_id])
        return {
            "title": _("New secret for {trigger}").format(trigger=trigger.name),
            "crumbs": ((reverse("console:triggers"), _("Triggers")), (back, trigger.name)),
            "once": once(request, _ONCE),
            "effects": (
                _("A new secret is created and shown only once, now."),
                _("From that moment on everything is signed with it, retries of what was tried before too."),
                _(
                    "An application that checks signatures refuses documents until it has the new one: suspend the "
                    "trigger first if that matters."
                ),
            ),
            "forever": _("The old secret is gone."),
            "back": back,
            "leave": _("Cancel"),
            "sign": "key",
            "button": _("Create a new secret"),
            "testid": "secret-do",
        }

    return dialog(request, "console/parts/question.html", shown, do)


@sensitive_variables("secret")
def _shown_once(request: HttpRequest, trigger: Trigger, secret: str, *, made: bool) -> HttpResponse:
    href = reverse("console:trigger", args=[trigger.public_id])
    context = {
        "title": _("Secret of {trigger}").format(trigger=trigger.name),
        "crumbs": [(reverse("console:triggers"), _("Triggers")), (href, trigger.name)],
        "heading": (_("{trigger} is made") if made else _("{trigger} has a new secret")).format(trigger=trigger.name),
        "href": href,
        "secret": secret,
        "then": _("Documents are handed over from now on.") if made else "",
    }
    return page(request, "console/parts/secret_made.html", context)


def once(request: HttpRequest, name: str) -> str:
    """A mark for a form whose answer shows a secret: a reload that posts it again must not make another."""
    mark = secrets.token_urlsafe(16)
    request.session[name] = mark
    return mark


def used_already(request: HttpRequest, name: str) -> bool:
    """Whether the posted form's mark is not the one that was given out last."""
    return request.POST.get("once", "-") != request.session.get(name)


def signs(trigger: Trigger) -> bool:
    """Whether the trigger speaks HTTP to anybody, and so signs with its secret."""
    return trigger.kind == ServiceKind.HTTP or Consult.HTTP in (trigger.resolver, trigger.monitor)
