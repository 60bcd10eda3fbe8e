"""URIs and certificate fingerprints: one form to compare them in, and what is wrong with one."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from partners.choices import Transport

_HIERARCHICAL = re.compile(r"([^:/?#]+)://([^/?#]*)(.*)", re.DOTALL)
_OPAQUE = re.compile(r"([^:/?#]+):(.*)", re.DOTALL)
_FINGERPRINT = re.compile(r"[0-9a-f]{64}")


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
        return f"{match[1].lower()}:{match[2]}"
    return text


def uri_fault(uri: str, transport: str) -> tuple[str, str] | None:
    """(code, sentence) for the first thing wrong with `uri` on this transport, or None.

    The sentence does not repeat the URI: with user information in it, it holds a password.
    """
    if not uri:
        return "uri_missing", "The URI is missing: enter one, such as https://msh.partner.example/ebxml."
    if any(not "!" <= sign <= "~" for sign in uri):
        return "uri_characters", "The URI has a space or a sign outside ASCII in it: percent-encode it."
    try:
        parts = urlsplit(uri)
        port = parts.port
    except ValueError:
        return "uri_malformed", "The URI cannot be read: check its host and port."
    if transport == Transport.HTTP and parts.scheme not in {"http", "https"}:
        return "uri_scheme", "The HTTP transport needs a URI that begins with http:// or https://."
    if "@" in parts.netloc:
        return "uri_userinfo", "The URI has a user name in it: take it out, and store a credential instead."
    if not parts.hostname:
        return "uri_host", "The URI names no host: enter it in full, such as https://msh.partner.example/ebxml."
    if port == 0:
        return "uri_port", "Port 0 cannot be connected to: enter another port, or none."
    if "#" in uri:
        return "uri_fragment", "The URI has a fragment (#...), which is never sent: take it out."
    return None


def normalise_fingerprint(text: str) -> str | None:
    """A SHA-256 fingerprint as 64 lower-case hexadecimal digits, or None when it is none.

    Colons, spaces and upper case are taken, and so is a leading `sha256:` or openssl's `SHA256 Fingerprint=`.
    """
    body = text.strip().lower()
    if body.startswith("sha256"):
        body = body.removeprefix("sha256").replace("fingerprint", "").lstrip(" :=")
    body = body.replace(":", "").replace(" ", "")
    return body if _FINGERPRINT.fullmatch(body) else None
