"""Messages and what belongs to them, as screens and API read them. Bytes are not loaded with lists."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

from django.db import OperationalError, connection, transaction
from django.db.models import Model, Q, QuerySet
from django.utils.translation import gettext as _

from messaging.choices import DocumentIdSource
from messaging.exceptions import ApplicationError, NotFound
from messaging.models import Delivery, Message, Payload, Signal, Transmission
from partners import visibility
from rmhub.ids import BadPublicId, public_id, read_public_id
from rmhub.language import number

Row = TypeVar("Row", bound=Model)
SECONDS = 3
# Beginnings of ids are looked up in the order of the ids' text, so that the newest of them must all be read first.
MOST_ALIKE, SHORTEST_BEGINNING = 1000, 3


class TooBroad(ApplicationError):
    """A search took longer than `SECONDS`, or is about more than can be put in order."""

    code = "query_too_broad"


class AmbiguousId(ApplicationError):
    """Several messages have this MessageId (one that we sent and one that we received, or of two partners)."""

    code = "ambiguous_message_id"


def message(message_id: uuid.UUID) -> Message:
    """One message with pair, parties and agreement. Raises NotFound."""
    found = with_names(shown().filter(pk=message_id)).first()
    if found is None:
        raise NotFound(_("There is no message {message}.").format(message=public_id("msg", message_id)))
    return found


def shown() -> QuerySet[Message]:
    """The messages that the present request may show."""
    return visibility.limit(Message.objects.all(), "pair__partner")


def in_store(message_id: uuid.UUID | None) -> Message | None:
    """The same for what names a message that may have left the store; None when it has."""
    return with_names(shown().filter(pk=message_id)).first() if message_id else None


def message_by_reference(reference: str) -> Message:
    """One message by its id (`msg_...`) or its MessageId. Raises NotFound, AmbiguousId."""
    try:
        return message(read_public_id("msg", reference))
    except BadPublicId:
        pass
    wanted = shown().filter(message_id=reference) if "\x00" not in reference else Message.objects.none()
    found = list(with_names(wanted).order_by("-id")[:2])
    if not found:
        raise NotFound(_("There is no message {message}.").format(message=reference))
    if len(found) > 1:
        raise AmbiguousId(
            _(
                "More than one message has the MessageId {message_id}: look for it with q={message_id} in the list of "
                "messages, and use the id of the one that you mean."
            ).format(message_id=reference)
        )
    return found[0]


def has_id(text: str) -> bool:
    """Whether a message has this id, or a MessageId that begins so: what `MessageFilters.q` would find."""
    try:
        with bounded():
            return shown().filter(named(text)).exists()
    except TooBroad:
        return True  # too many have it


def with_names(queryset: QuerySet[Message]) -> QuerySet[Message]:
    """The same messages with what a row shows: pair, partner, agreement; without their bytes."""
    return queryset.select_related("pair__partner", "agreement_version__agreement").defer("wire_frame")


def payloads(message_id: uuid.UUID) -> QuerySet[Payload]:
    """A message's payloads in their order, without their bytes."""
    return Payload.objects.filter(message=message_id).defer("content").order_by("number")


def transmissions(*message_ids: uuid.UUID) -> QuerySet[Transmission]:
    """The attempts of messages, oldest first, without the answers' bytes."""
    return Transmission.objects.filter(message__in=message_ids).defer("response").order_by("id")


def transmission(transmission_id: uuid.UUID) -> Transmission:
    """One attempt with the head and body of its answer. Raises NotFound."""
    found = visibility.limit(Transmission.objects.filter(pk=transmission_id), "pair__partner").first()
    if found is None:
        raise NotFound(_("There is no transmission {attempt}.").format(attempt=public_id("att", transmission_id)))
    return found


def signals(*message_ids: uuid.UUID) -> QuerySet[Signal]:
    """Acknowledgements and error messages about messages, oldest first, without their octets."""
    return Signal.objects.filter(about__in=message_ids).defer("body").order_by("id")


def attempts_of_signals(signals: Iterable[Signal]) -> QuerySet[Transmission]:
    """The attempts to send our acknowledgements and error messages, with these, oldest first, without any bytes."""
    found = Transmission.objects.filter(signal__in=[signal.pk for signal in signals]).select_related("signal")
    return found.defer("response", "signal__body").order_by("id")


def newest(found: QuerySet[Row], most: int) -> list[Row]:
    """The last so many of what is in the order of time, in that order."""
    return list(found.order_by("-id")[:most])[::-1]


def signal(signal_id: uuid.UUID) -> Signal:
    """One acknowledgement or error message with its octets. Raises NotFound."""
    found = visibility.limit(Signal.objects.filter(pk=signal_id), "pair__partner").first()
    if found is None:
        raise NotFound(_("There is no signal {signal}.").format(signal=public_id("sig", signal_id)))
    return found


def of_document(document_id: str) -> Q:
    """Messages that bring the document with this id: by what their senders said, or by what it says itself."""
    inside = Delivery.objects.filter(document_id=document_id, document_id_from=DocumentIdSource.DOCUMENT)
    brought = list(inside.order_by("-id").values_list("message", flat=True)[:MOST_ALIKE])
    # The condition of its index is said in full, so that every plan can use it.
    said = Q(document_id=document_id) & ~Q(document_id="")
    return said | Q(message_id=document_id, document_id="") | Q(pk__in=brought)


def with_attribute(name: str, value: str, *, most: int) -> list[uuid.UUID]:
    """Some of the messages that have this attribute, in no order: by its index, whatever else is searched."""
    return list(shown().filter(attributes__contains={name: value}).values_list("id", flat=True)[:most])


def named(text: str) -> Q:
    """Messages with exactly this id, or an attribute of this value; when there are none, those whose MessageId begins
    so. Raises TooBroad.
    """
    exact = of_document(text) | Q(conversation_id=text)
    valued = list(Message.objects.filter(attributes__any_value=text).values_list("id", flat=True)[: MOST_ALIKE + 1])
    if len(valued) > MOST_ALIKE:
        raise TooBroad(
            _("More than {count} messages have an attribute with the value {text}: name it, and narrow it.").format(
                count=number(MOST_ALIKE), text=text
            )
        )
    if valued:
        exact |= Q(pk__in=valued)
    with suppress(BadPublicId):
        exact |= Q(pk=read_public_id("msg", text))
    if len(text) < SHORTEST_BEGINNING or Message.objects.filter(exact).exists():
        return exact
    alike = list(Message.objects.filter(message_id__startswith=text).values_list("id", flat=True)[: MOST_ALIKE + 1])
    if len(alike) > MOST_ALIKE:
        raise TooBroad(
            _("More than {count} MessageIds begin with {text}: give more of the id.").format(
                count=number(MOST_ALIKE), text=text
            )
        )
    return Q(pk__in=alike)


@contextmanager
def planned_for_values(**settings: str) -> Iterator[None]:
    """Has every statement planned for its values, with further settings of the database.

    A statement that comes often gets one plan for any value otherwise. Such a plan cannot use the indexes of some
    states only, and when it is to find a few of what it takes for many, it looks through all rows.
    """
    settings["plan_cache_mode"] = "force_custom_plan"
    with transaction.atomic(), connection.cursor() as cursor:
        calls = ", ".join(["set_config(%s, %s, true)"] * len(settings))
        cursor.execute(f"SELECT {calls}", [part for pair in settings.items() for part in pair])
        yield


@contextmanager
def bounded() -> Iterator[None]:
    """Ends a search that no index serves, before it ends the patience of whoever waits for it. Raises TooBroad."""
    try:
        with planned_for_values(statement_timeout=str(SECONDS * 1000)):
            yield
    except OperationalError as error:
        if "statement timeout" not in str(error):
            raise
        raise TooBroad(
            _(
                "This search took longer than {seconds} s and was stopped: narrow it by date or partner (created_gte, "
                "created_lt, partner, pair), or search for an exact id with q."
            ).format(seconds=SECONDS)
        ) from error
