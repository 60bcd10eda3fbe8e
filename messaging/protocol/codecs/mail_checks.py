"""What a mail server that we trust has found out about a sender: Authentication-Results (RFC 8601).

Only the topmost header with the checker's name counts: a server that follows section 5 removes what others wrote under
its name before it adds its own on top, and whatever lies below came with the mail.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from messaging.protocol.codecs.mail import Mail

_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_METHOD = re.compile(r"([A-Za-z0-9-]+)\s*(?:/\s*[0-9]+\s*)?=\s*([A-Za-z]+)(?:\s|\Z)")
# A quoted local part may hold another address: the domain is what follows it.
_PROPERTY = re.compile(r'\b([A-Za-z0-9-]+)\s*\.\s*([A-Za-z0-9_-]+)\s*=\s*((?:"(?:[^"\\]|\\.)*")?[^\s;"]*)')
_REASON = re.compile(r'\breason\s*=\s*(?:"(?:[^"\\]|\\.)*"|[^\s;"]*)', re.IGNORECASE)
_LONGEST = 16 * 1024

# What a passed check proves, by method: the properties that hold the domain (RFC 8601, 2.7; RFC 7489, 11.1).
_DOMAINS = {
    "dkim": ("header.d", "header.i"),
    "spf": ("smtp.mailfrom",),
    "dmarc": ("header.from",),
}


def is_vouched_for(mail: Mail, checker: str, address: str) -> bool:
    """Whether the checker says that a mail in whose From `address` stands really comes from that address's domain.

    dkim, spf or dmarc must have passed for the domain itself or one above it, whose owner rules it anyway.
    """
    domain = address.rpartition("@")[2].lower()
    if not checker or not domain:
        return False
    for value in mail.all("authentication-results"):
        name, results = _read(value)
        if name == checker.lower():
            return any(_covers(proved, domain) for proved in _proved(results))
    return False


def _covers(proved: str, domain: str) -> bool:
    return "." in proved and (domain == proved or domain.endswith("." + proved))


def _proved(results: list[str]) -> Iterator[str]:
    """The domains for which a check has passed."""
    for result in results:
        match = _METHOD.match(result)
        if match is None or match[2].lower() != "pass":
            continue
        wanted = _DOMAINS.get(match[1].lower(), ())
        for kind, name, value in _PROPERTY.findall(_REASON.sub(" ", result[match.end() :])):
            if f"{kind}.{name}".lower() in wanted:
                yield value.strip('"').rpartition("@")[2].lower().rstrip(".")


def _read(value: str) -> tuple[str, list[str]]:
    """(authserv-id in lower case, the results), comments left out. ("", []) for a header that cannot be read."""
    text = _without_comments(value[:_LONGEST])
    if text is None:
        return "", []
    head, *results = _split(text)
    words = head.split()
    if not words:
        return "", []
    name = words[0]
    if quoted := _QUOTED.fullmatch(name):
        name = quoted[1]
    return name.lower(), [result.strip() for result in results]


def _without_comments(text: str) -> str | None:
    """`text` with each comment as a space (RFC 5322, 3.2.2: they nest); None when one, or a quotation, never ends."""
    kept: list[str] = []
    depth = 0
    quoted = escaped = False
    for sign in text:
        if escaped:
            escaped = False
        elif sign == "\\" and (quoted or depth):
            escaped = True
        elif sign == '"' and not depth:
            quoted = not quoted
        elif sign == "(" and not quoted:
            depth += 1
            kept.append(" ")
        elif sign == ")" and depth and not quoted:
            depth -= 1
            continue
        if not depth:
            kept.append(sign)
    return None if depth or quoted or escaped else "".join(kept)


def _split(text: str) -> list[str]:
    """At semicolons outside quotations."""
    pieces = [""]
    quoted = escaped = False
    for sign in text:
        if escaped:
            escaped = False
        elif sign == "\\" and quoted:
            escaped = True
        elif sign == '"':
            quoted = not quoted
        elif sign == ";" and not quoted:
            pieces.append("")
            continue
        pieces[-1] += sign
    return pieces
