"""Whose mail addresses are known: our own endpoints' and the partners', as agreements in force have them."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from partners import registry
from partners.addresses import mailbox
from partners.registry import Registry
from partners.terms import Principal

_NO_CREDENTIAL = uuid.UUID(int=0)


class _Addresses(NamedTuple):
    own: frozenset[str]
    partners: dict[str, Principal]


def is_ours(address: str) -> bool:
    """Whether messages, acknowledgements or error messages may come to this address."""
    return address.lower() in _known(registry.current()).own


def partner_at(address: str) -> Principal | None:
    """The partner, or the router that leads to one, that sends from this address.

    It is no proof: whoever calls this has had the address checked, or asks somebody who has.
    """
    return _known(registry.current()).partners.get(address.lower())


@lru_cache(maxsize=2)
def _known(known: Registry) -> _Addresses:
    own: set[str] = set()
    partners: dict[str, Principal] = {}
    for terms in known.active():
        own.update(_mailboxes((terms.own_uri, terms.own_error_uri)))
        principal = Principal(terms.hop_party_id, terms.hop_party_name, _NO_CREDENTIAL)
        theirs = (terms.partner_uri, terms.partner_address, terms.partner_error_uri, terms.partner_error_address)
        for address in _mailboxes(theirs):
            partners.setdefault(address, principal)
    return _Addresses(frozenset(own), partners)


def _mailboxes(uris: Iterable[str]) -> set[str]:
    """In lower case throughout: no partner tells two mailboxes apart by capitals, and relays do not keep them."""
    return {address.lower() for uri in uris if (address := mailbox(uri))}
