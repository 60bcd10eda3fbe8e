"""Where paths lead in documents: to what is covered for some people, and to what messages are found by. And schemas
that documents have to fit.
"""

from __future__ import annotations

from django.db import models

from messaging.choices import DocumentKind, MaskKind, SchemaEffect
from messaging.models.base import Identified
from partners.models import Party
from rmhub.language import gettext_lazy
from rmhub.roles import Role


class DocumentRule(Identified):
    """Where a path in documents leads to something that matters, and in whose documents."""

    partner = models.ForeignKey(
        Party,
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        related_name="+",
        help_text=gettext_lazy("None: of every partner."),
    )
    service = models.CharField(
        max_length=255, blank=True, default="", help_text=gettext_lazy("Empty: of every service.")
    )
    enabled = models.BooleanField(gettext_lazy("it is on"), default=True)
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    class Meta:
        abstract = True

    @property
    def version(self) -> int:
        """What changes with each change: the time of the last one, in microseconds."""
        return int(self.updated_at.timestamp() * 1_000_000)


class PayloadMask(DocumentRule):
    """Covers parts of payloads on the screen and in the API for people below a role. What is stored stays as it is."""

    PREFIX = "mask"

    name = models.CharField(max_length=80, unique=True)
    kind = models.CharField(gettext_lazy("documents"), max_length=8, choices=MaskKind)
    path = models.CharField(
        max_length=500,
        help_text=gettext_lazy(
            "XML: an XPath with names without prefixes, //Customer/IBAN or //@card. JSON: $.customer.iban, "
            "$.lines[*].price, $..iban. EDIFACT and X12: segment and element, NAD+4, or a component, NAD+4:2."
        ),
    )
    # A viewer opens no payload at all, so that the roles that a rule can tell apart are these.
    visible_to = models.CharField(
        gettext_lazy("seen by"),
        max_length=10,
        default=Role.ADMIN.value,
        choices=[(role.value, role.value) for role in (Role.OPERATOR, Role.ADMIN)],
        help_text=gettext_lazy("The lowest role that sees it uncovered. Viewers open no payloads at all."),
    )

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name


class AttributeRule(DocumentRule):
    """Takes an attribute, such as the invoice number, from documents when they are stored: messages are found by it.

    Several rules may take the same attribute, one for each kind of document: the first that finds something counts.
    """

    PREFIX = "atr"

    name = models.CharField(
        gettext_lazy("attribute"),
        max_length=30,
        help_text=gettext_lazy(
            "Messages are searched by this word: invoice:4711 finds those whose invoice is 4711. Small letters, "
            "digits, _ and -. Several rules may take the same attribute from different documents."
        ),
    )
    kind = models.CharField(gettext_lazy("documents"), max_length=8, choices=DocumentKind)
    path = models.CharField(
        max_length=500,
        help_text=gettext_lazy(
            "XML: an XPath with names without prefixes, //Invoice/Number or //@number. JSON: $.invoice.number. "
            "EDIFACT and X12: segment and element, BGM+2, or a component, NAD+2:1. CSV: the heading of a column, or "
            "its number, 3. The first value that is not empty counts."
        ),
    )
    action = models.CharField(max_length=255, blank=True, default="", help_text=gettext_lazy("Empty: of every action."))
    shown = models.BooleanField(
        gettext_lazy("its value is shown"),
        default=True,
        help_text=gettext_lazy(
            "Off: messages are found by it, but only the document itself shows the value, and there masks apply."
        ),
    )

    class Meta:
        ordering = ("name", "id")

    def __str__(self) -> str:
        return self.name


class DocumentSchema(DocumentRule):
    """What documents of a service and action have to look like, and what happens to those that do not."""

    PREFIX = "sch"

    name = models.CharField(max_length=80, unique=True)
    kind = models.CharField(
        gettext_lazy("documents"),
        max_length=8,
        choices=MaskKind,
        help_text=gettext_lazy(
            "XML is checked against an XML Schema 1.0, JSON against a JSON Schema, EDIFACT and X12 against a "
            "list of a message's segments."
        ),
    )
    action = models.CharField(max_length=255, blank=True, default="", help_text=gettext_lazy("Empty: of every action."))
    on_submission = models.CharField(
        gettext_lazy("a submitted document that does not fit"),
        max_length=8,
        default=SchemaEffect.REFUSE,
        choices=[(one.value, one.label) for one in (SchemaEffect.REFUSE, SchemaEffect.FLAG, SchemaEffect.OFF)],
        help_text=gettext_lazy(
            "Refused: its application gets an error that says what and where, and nothing is stored."
        ),
    )
    on_receipt = models.CharField(
        gettext_lazy("a received document that does not fit"),
        max_length=8,
        default=SchemaEffect.FLAG,
        choices=[(one.value, one.label) for one in (SchemaEffect.FLAG, SchemaEffect.HOLD, SchemaEffect.OFF)],
        help_text=gettext_lazy(
            "It is stored and acknowledged in any case. Held: applications get it when a person says so."
        ),
    )
    number = models.PositiveIntegerField(gettext_lazy("version in use"), default=1)

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name


class SchemaVersion(models.Model):
    """The files of a schema, as they were given together; never changed."""

    id = models.BigAutoField(primary_key=True)
    schema = models.ForeignKey(DocumentSchema, on_delete=models.CASCADE, related_name="versions", db_index=False)
    number = models.PositiveIntegerField()
    files = models.JSONField(help_text="[name, text] of each; the first is the one that documents are checked against.")
    created_at = models.DateTimeField()
    created_by = models.CharField(max_length=150)

    class Meta:
        ordering = ("schema", "-number")
        constraints = (models.UniqueConstraint(fields=("schema", "number"), name="schema_version_unique"),)

    def __str__(self) -> str:
        return f"version {self.number}"
