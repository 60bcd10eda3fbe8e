"""How the API names a row of another kind: by its id and by what people call it."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from messaging.api.fields import IdOut


def _named(component: str, prefix: str, says: str, by: str = "name") -> type[serializers.Serializer]:
    """Return the serializer of a row's id and of its member `by`; `component` is its name in the OpenAPI document."""
    members: dict[str, Any] = {"id": IdOut(prefix), by: serializers.CharField()}
    return type(component, (serializers.Serializer,), {**members, "__doc__": says, "__module__": __name__})


AgreementNamed = _named("AgreementNamed", "agr", "An agreement, by id and TPAId.", "tpa_id")
EndpointRef = _named("EndpointRef", "end", "An endpoint, by id and URI.", "uri")
HoldPartyRef = _named("HoldPartyRef", "par", "A party, by id and name.")
MessageRef = _named("MessageRef", "msg", "A message, by id and MessageId.", "message_id")
NotificationRuleRef = _named("NotificationRuleRef", "rule", "A rule, by id and name.")
NotifiedGroup = _named("NotifiedGroup", "grp", "A partner group.")
PairRef = _named("PairRef", "pair", "A pair, by id and code.", "code")
PartyRef = _named("PartyRef", "par", "A party, by id and name.")
TriggerRef = _named("TriggerRef", "trg", "A trigger, by id and name.")
WebhookRef = _named("WebhookRef", "whe", "A webhook endpoint.")
