"""URIs and fingerprints of certificates and host keys: one form to compare them in."""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit

from django.utils.translation import gettext as _

_HIERARCHICAL = re.compile(r"([^:/?#]+)://([^/?#]*)(.*)", re.DOTALL)
_OPAQUE = re.compile(r"([^:/?#]+):(.*)", re.DOTALL)
_FINGERPRINT = re.compile(r"[0-9a-f]{64}")
_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_MAILBOX = re.compile(rf"{_ATOM}(?:\.{_ATOM})*@{_LABEL}(?:\.{_LABEL})*")
_HOST_KEY = re.compile(r"SHA256:[A-Za-z0-9+/]{43}")


def normalise_uri(uri: str) -> str:
    """`uri` as it is compared (wire-ebxml 1.4): trimmed, scheme and host in lower case, nothing else. Never raises.

    Ports, paths and a final slash stay as they are: two URIs that differ there are two pairs.
    """
    text = uri.strip()
    if match := _HIERARCHICAL.fullmatch(text):
        scheme, authority, rest = match.groups()
        user, at, host = authority.rpartition("@")
        return f"{scheme.lower()}://{user}{at}{host.lower()}{rest}"
    if match := _OPAQUE.fullmatch(text):
        scheme, rest = match[1].lower(), match[2]
        if scheme == "mailto":
            address, question, fields = rest.partition("?")
            local, at, domain = address.rpartition("@")
            rest = f"{local}{at}{domain.lower() if at else domain}{question}{fields}"
        return f"{scheme}:{rest}"
    return text


def mailbox(uri: str) -> str:
    """The address of a `mailto:` URI as mail servers know it, domain in lower case; "" when it is none (RFC 6068).

    One address of ASCII letters and nothing else, so that it can stand in an SMTP command as it is.
    """
    scheme, colon, rest = uri.strip().partition(":")
    if not colon or scheme.lower() != "mailto" or rest.startswith("//") or "?" in rest or "#" in rest:
        return ""
    address = unquote(rest, errors="replace")
    if len(address) > 254 or _MAILBOX.fullmatch(address) is None:
        return ""
    local, __, domain = address.rpartition("@")
    return f"{local}@{domain.lower()}"


def host_of(uri: str) -> str:
    """The host that a URI names, the domain of a `mailto:` address; "" when it names none."""
    try:
        return mailbox(uri).rpartition("@")[2] or urlsplit(uri).hostname or ""
    except ValueError:
        return ""


def host_key_fault(host_key: str) -> str | None:
    """What is wrong with the fingerprints of a server's key, as a sentence, or None; several are apart by spaces."""
    if all(_HOST_KEY.fullmatch(one) for one in host_keys(host_key)):
        return None
    return _(
        "A host key is a fingerprint as `ssh-keygen -l` prints it: SHA256: and 43 characters after it. "
        "Several, while a key is replaced, have a space between them."
    )


def host_keys(text: str) -> tuple[str, ...]:
    """The fingerprints in a field for them."""
    return tuple(one for one in re.split(r"[\s,]+", text.strip()) if one)


def normalise_fingerprint(text: str) -> str | None:
    """A SHA-256 fingerprint as 64 lower-case hexadecimal digits, or None when it is none.

    Colons, spaces and upper case are taken, and so is a leading `sha256:` or openssl's `SHA256 Fingerprint=`.
    """
    body = text.strip().lower()
    if body.startswith("sha256"):
        body = body.removeprefix("sha256").replace("fingerprint", "").lstrip(" :=")
    body = body.replace(":", "").replace(" ", "")
    return body if _FINGERPRINT.fullmatch(body) else None
