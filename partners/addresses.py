"""URIs and certificate fingerprints: one form to compare them in, and what is wrong with one."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import SplitResult, unquote, urlsplit

from partners.choices import PickupKind, Transport

_HIERARCHICAL = re.compile(r"([^:/?#]+)://([^/?#]*)(.*)", re.DOTALL)
_OPAQUE = re.compile(r"([^:/?#]+):(.*)", re.DOTALL)
_FINGERPRINT = re.compile(r"[0-9a-f]{64}")
_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_MAILBOX = re.compile(rf"{_ATOM}(?:\.{_ATOM})*@{_LABEL}(?:\.{_LABEL})*")
_HOST_KEY = re.compile(r"SHA256:[A-Za-z0-9+/]{43}")
_MAIL_PORTS = {"smtp": 25, "smtp+starttls": 587, "smtps": 465}
PORTS = {"http": 80, "https": 443, **_MAIL_PORTS, "sftp": 22}  # of each scheme


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
    local, _, domain = address.rpartition("@")
    return f"{local}@{domain.lower()}"


def host_of(uri: str) -> str:
    """The host that a URI names, the domain of a `mailto:` address; "" when it names none."""
    try:
        return mailbox(uri).rpartition("@")[2] or urlsplit(uri).hostname or ""
    except ValueError:
        return ""


@dataclass(frozen=True, slots=True)
class MailServer:
    """A mail server of a URL. `scheme`: smtp (no encryption), smtp+starttls or smtps."""

    scheme: str
    host: str
    port: int
    username: str = ""
    password: str = field(default="", repr=False)


def mail_server(url: str) -> MailServer:
    """The server of `smtp://`, `smtp+starttls://` or `smtps://` with host, and port and user information if needed.

    Raises ValueError with a sentence for people, which does not repeat the URL: it may hold a password.
    """
    try:
        parts = urlsplit(url.strip())
        port = parts.port
    except ValueError:
        raise ValueError("The mail server's URL cannot be read: check its host and port.") from None
    if parts.scheme not in _MAIL_PORTS:
        raise ValueError(
            "The mail server's URL must begin with smtp+starttls://, smtps:// or, in a network of your own, smtp://."
        )
    if not parts.hostname or port == 0 or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ValueError(
            "The mail server's URL needs a host, may have a port, and has nothing after it: smtps://mail.example:465."
        )
    username, password = unquote(parts.username or ""), unquote(parts.password or "")
    return MailServer(parts.scheme, parts.hostname, port or _MAIL_PORTS[parts.scheme], username, password)


def mail_server_fault(url: str) -> tuple[str, str] | None:
    """(code, sentence) for the first thing wrong with an endpoint's mail server, or None. Empty is the hub's relay."""
    if not url:
        return None
    try:
        server = mail_server(url)
    except ValueError as error:
        return "server_malformed", str(error)
    if server.username or server.password:
        sentence = "The mail server's URL has a user name in it: take it out, and store an outbound credential instead."
        return "server_userinfo", sentence
    return None


def uri_fault(uri: str, transport: str) -> tuple[str, str] | None:
    """(code, sentence) for the first thing wrong with `uri` on this transport, or None.

    The sentence does not repeat the URI: with user information in it, it holds a password.
    """
    if not uri:
        return "uri_missing", "The URI is missing: enter one, such as https://msh.partner.example/ebxml."
    if any(not "!" <= sign <= "~" for sign in uri):
        return "uri_characters", "The URI has a space or a sign outside ASCII in it: percent-encode it."
    if transport == Transport.SMTP:
        return _mailto_fault(uri)
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
    return _folder_fault(parts) if transport == Transport.SFTP else None


def _folder_fault(parts: SplitResult) -> tuple[str, str] | None:
    if parts.scheme != "sftp":
        return "uri_scheme", "The file transport needs a URI such as sftp://files.partner.example/inbox/."
    folder = unquote(parts.path, errors="replace")
    if parts.query or any(sign < " " or sign in "\x7f\ufffd\\" for sign in folder):
        return "uri_folder", "The URI names no folder: leave out ?, backslashes and control characters."
    if not folder.endswith("/"):
        return "uri_folder", "The URI of a folder ends in a slash, such as sftp://files.partner.example/inbox/."
    if any(part in ("..", ".") or (part == "" and number) for number, part in enumerate(folder[:-1].split("/"))):
        return "uri_folder", "The URI's path must name the folder itself, without // and without . or .. in it."
    return None


def host_key_fault(host_key: str) -> str | None:
    """What is wrong with the fingerprints of a server's key, as a sentence, or None; several are apart by spaces."""
    if all(_HOST_KEY.fullmatch(one) for one in host_keys(host_key)):
        return None
    return (
        "A host key is a fingerprint as `ssh-keygen -l` prints it: SHA256: and 43 signs after it. "
        "Several, while a key is replaced, have a space between them."
    )


def host_keys(text: str) -> tuple[str, ...]:
    """The fingerprints in a field for them."""
    return tuple(one for one in re.split(r"[\s,]+", text.strip()) if one)


def file_server_fault(url: str) -> tuple[str, str] | None:
    """(code, sentence) for the first thing wrong with an endpoint's file server, or None. Empty is that of the URI."""
    if not url:
        return None
    fault = uri_fault(url if url.endswith("/") else f"{url}/", Transport.SFTP)
    if fault is None and urlsplit(url).path not in ("", "/"):
        return "server_path", "The file server is a host and a port; the folder comes from the URI: leave out the path."
    return fault


def _mailto_fault(uri: str) -> tuple[str, str] | None:
    scheme, _, rest = uri.partition(":")
    if scheme.lower() != "mailto":
        return "uri_scheme", "The mail transport needs a URI such as mailto:orders@partner.example."
    if "?" in rest or "#" in rest:
        return "uri_fields", "The URI says more than an address: leave out everything from the ? or # on."
    if not mailbox(uri):
        sentence = "The URI names no mail address: enter one, such as mailto:orders@partner.example, without slashes."
        return "uri_mailbox", sentence
    return None


def pickup_fault(url: str, kind: str) -> tuple[str, str] | None:
    """(code, sentence) for the first thing wrong with where a pickup looks, or None."""
    if kind == PickupKind.SFTP:
        return uri_fault(url, Transport.SFTP)
    if kind != PickupKind.IMAP:
        return "kind_unknown", "Choose a mailbox (IMAP) or a folder (SFTP)."
    if not url or any(not "!" <= sign <= "~" for sign in url):
        return "uri_characters", "Enter the mailbox as a URL without spaces, such as imaps://mail.example.org/INBOX."
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "uri_malformed", "The URL cannot be read: check its host and port."
    if parts.scheme not in ("imaps", "imap+starttls"):
        return (
            "uri_scheme",
            "A mailbox is reached by imaps:// or imap+starttls://, such as imaps://mail.example.org/INBOX.",
        )
    if "@" in parts.netloc:
        return "uri_userinfo", "The URL has a user name in it: take it out, and enter it in its own field."
    if not parts.hostname or port == 0 or parts.query or parts.fragment:
        return "uri_host", "The URL needs a host, may have a port and a mailbox, and has nothing after it."
    mailbox_name = unquote(parts.path[1:], errors="replace")
    if any(sign < " " or sign in "\x7f\ufffd" for sign in mailbox_name):
        return "uri_mailbox", "The name of the mailbox has a control character in it: take it out."
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
