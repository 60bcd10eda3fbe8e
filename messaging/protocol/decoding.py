"""Bytes as text: by the charset that the content type names, else by what they look like. Nothing raises."""

from __future__ import annotations

from email.message import Message as MimeHeaders


def decoded(content: bytes, content_type: str) -> str:
    """The text, whatever it takes: what is no text at all is read as Latin-1."""
    return text_of(content, content_type) or content.decode("latin-1")


def text_of(content: bytes, content_type: str) -> str | None:
    """Decoded by the named charset, else UTF-8, else Latin-1; None for what looks like no text."""
    wide = content.startswith((b"\xff\xfe", b"\xfe\xff"))
    start = content[:4096]
    if not wide and sum(byte < 32 and byte not in b"\t\n\r" for byte in start) * 10 > len(start):
        return None
    charset = _charset(content_type) or ("utf-16" if wide else "utf-8")
    for name in (charset, "utf-8"):
        try:
            return content.decode(name)
        except (UnicodeDecodeError, LookupError):
            pass
        # Only the end may be in the middle of a character.
        for drop in (1, 2, 3):
            try:
                return content[:-drop].decode(name)
            except (UnicodeDecodeError, LookupError):
                continue
    return content.decode("latin-1")


def _charset(content_type: str) -> str:
    headers = MimeHeaders()
    headers["Content-Type"] = content_type.replace("\r", " ").replace("\n", " ")
    return headers.get_content_charset() or ""
