"""Whether a document fits a schema: XML Schema 1.0, JSON Schema, or a list of segments of an EDIFACT or X12 message.

A schema is one file or several that name each other; nothing is read from elsewhere. What is said of a document names
places, elements and rules, never what stands in it: masks may cover that. Pure functions of bytes.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jsonschema_rs
from lxml import etree

from messaging.protocol import edi_messages, json_text, selecting
from messaging.protocol.edi_messages import Fault

MOST_FAULTS = 10  # of a document; what comes after these often comes of them
MAX_FILES, MAX_FILE = 50, 1024 * 1024
FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)
_HERE = "schema:///"  # where the files of one schema lie: they find each other by their names

Files = Mapping[str, str]
Check = Callable[[bytes, str], Iterable[Fault]]


class BadSchema(ValueError):
    """No schema can be made of the files. `text`: a sentence with names in braces, `values`: what they stand for."""

    def __init__(self, text: str, **values: object) -> None:
        super().__init__(text.format(**values))
        self.text, self.values = text, values


def gettext_noop(text: str) -> str:
    """Marks a text for the catalogs; whoever shows it translates it."""
    return text


_NEEDED = gettext_noop("{name} is needed and is not among the files: add it.")


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema that documents are checked against, from any thread."""

    kind: str
    check: Check

    def faults(self, content: bytes, content_type: str) -> list[Fault]:
        """What of a document does not fit; nothing: it fits. Of more than `MOST_FAULTS` the first."""
        if len(content) > selecting.MAX_BYTES:
            return [Fault(0, 0, "", f"It is larger than {selecting.MAX_BYTES >> 20} MiB, so it is not checked.")]
        found = []
        for fault in self.check(content, content_type):
            found.append(fault)
            if len(found) == MOST_FAULTS:
                break
        return found


def read(kind: str, files: Files) -> Schema:
    """The schema of these files, name -> text; the first is the one that documents are checked against.

    `kind`: as `selecting.kind_of` calls documents. Raises BadSchema.
    """
    if not files or not next(iter(files.values())).strip():
        raise BadSchema(gettext_noop("Give the schema: its text, or a file."))
    if len(files) > MAX_FILES:
        raise BadSchema(gettext_noop("At most {most} files."), most=MAX_FILES)
    for name, text in files.items():
        if not FILE_NAME.fullmatch(name):
            raise BadSchema(
                gettext_noop("{name} cannot be the name of a file: use letters, digits, dots, _ and -."),
                name=repr(name[:100]),
            )
        if len(text) > MAX_FILE:
            raise BadSchema(gettext_noop("{name} is larger than {size} MiB."), name=name, size=MAX_FILE >> 20)
    return Schema(kind, _READ[kind](files))


# --- XML Schema ---


class _Files(etree.Resolver):
    """Opens what a schema includes: the files that were given with it, and nothing else."""

    def __init__(self, files: Files) -> None:
        super().__init__()
        self.files = files
        self.missing = ""

    def resolve(self, system_url: str | None, public_id: str | None, context: Any) -> Any:  # type: ignore[override]
        url = system_url or ""
        # They may lie in folders where they come from.
        text = self.files.get(url.rpartition("/")[2]) if url.startswith(_HERE.rstrip("/")) else None
        if text is None:
            self.missing = url.removeprefix(_HERE)
            raise BadSchema("{name}", name=self.missing)
        return self.resolve_string(text.encode(), context, base_url=url)


def _xml(files: Files) -> Check:
    files = {name: _without_declaration(text) for name, text in files.items()}
    others = _Files(files)
    parser = etree.XMLParser(resolve_entities=False, load_dtd=False, no_network=True, huge_tree=False)
    parser.resolvers.add(others)
    for name, text in files.items():
        try:
            selecting.xml(text.encode())
        except selecting.Unreadable as error:
            raise BadSchema("{name}: {error}.", name=name, error=error) from error
    name, text = next(iter(files.items()))
    try:
        root = etree.fromstring(text.encode(), parser, base_url=_HERE + name)
        schema = etree.XMLSchema(root)
        if others.missing:
            raise BadSchema("{name}", name=others.missing)
    except (etree.LxmlError, BadSchema) as error:
        if others.missing:
            raise BadSchema(_NEEDED, name=others.missing) from error
        raise BadSchema(gettext_noop("It is no XML Schema: {error}"), error=_said(str(error))) from error
    lock = threading.Lock()  # its log of errors belongs to the schema

    def check(content: bytes, content_type: str) -> list[Fault]:
        try:
            document = selecting.xml(content)
        except selecting.Unreadable as error:
            return [_unreadable(error)]
        with lock:
            schema.validate(document)
            errors = list(schema.error_log)  # type: ignore[call-overload]
        return [
            Fault(error.line, 0, _xpath(document, error.path), _said(error.message)) for error in errors[:MOST_FAULTS]
        ]

    return check


def _without_declaration(text: str) -> str:
    """XML that is a text already: what it says of its encoding is over."""
    return re.sub(r"^\ufeff?\s*<\?xml[^>]*\?>", "", text, count=1)


# libxml2 repeats what stands in the document.
_VALUES = (
    (re.compile(r": '.*' is not a valid value", re.DOTALL), ": its value is not a valid value"),
    (re.compile(r"The value '.*' (is not|is less|is greater|has|does not)", re.DOTALL), r"The value \1"),
    (re.compile(r"(key-sequence) \[.*\] ", re.DOTALL), r"\1 "),
    (re.compile(r"The value '.*' does not", re.DOTALL), "The value does not"),
    (re.compile(r"The actual value '.*' does not", re.DOTALL), "The value does not"),
)
_NAMESPACE = re.compile(r"\{[^{}']*\}")


def _said(text: str) -> str:
    """libxml2's sentence without values and namespaces."""
    for pattern, instead in _VALUES:
        text = pattern.sub(instead, text)
    return " ".join(_NAMESPACE.sub("", text).split())[:300]


# Prefixes are the document's, and may mean another namespace in each of its elements.
_PREFIXED = re.compile(r"([^/\[\]:]+):([^/\[\]:]+)")


def _xpath(document: etree._Element, path: str | None) -> str:
    """The place with the names of the elements, which the schema library leaves out where there are namespaces."""
    found: Any = []
    with contextlib.suppress(etree.XPathError):
        found = document.xpath(_PREFIXED.sub(r"*[local-name()='\2']", path)) if path else []
    if not (isinstance(found, list) and found and isinstance(found[0], etree._Element)):
        return ""
    steps: list[str] = []
    one: etree._Element | None = found[0]
    while one is not None:
        above = one.getparent()
        name = etree.QName(one).localname
        alike = [] if above is None else [other for other in above if _is_named(other, name)]
        steps.append(f"{name}[{alike.index(one) + 1}]" if len(alike) > 1 else name)
        one = above
    return "/" + "/".join(reversed(steps))


def _is_named(element: etree._Element, name: str) -> bool:
    return isinstance(element.tag, str) and etree.QName(element).localname == name


# --- JSON Schema ---


def _json(files: Files) -> Check:
    read: dict[str, Any] = {}
    for name, text in files.items():
        try:
            read[name] = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise BadSchema(gettext_noop("{name} is not valid JSON: {error}."), name=name, error=error) from error
    main = next(iter(read))
    by_name = [(_HERE + name, one) for name, one in read.items()]
    by_id = [(one["$id"], one) for one in read.values() if isinstance(one, dict) and isinstance(one.get("$id"), str)]
    missing: list[str] = []

    def elsewhere(url: str) -> Any:
        missing.append(url.removeprefix(_HERE))
        raise ValueError("it is not among the files")

    # Expressions that cannot take long, whatever a document has for them.
    linear = jsonschema_rs.RegexOptions()
    try:
        registry = jsonschema_rs.Registry([*by_name, *by_id], retriever=elsewhere)
        validator = jsonschema_rs.validator_for(
            read[main],
            registry=registry,
            retriever=elsewhere,
            base_uri=_HERE + main,
            pattern_options=linear,
            mask="its value",
        )
    except (ValueError, jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError) as error:
        if missing:
            raise BadSchema(_NEEDED, name=missing[0]) from error
        where = "/".join(map(str, getattr(error, "instance_path", ())))
        said = str(getattr(error, "message", error)).partition("\n")[0].replace("its value", where or "it", 1)
        text = gettext_noop("It is no JSON Schema: {error}.")
        if "regex" in said:
            text = gettext_noop("It is no JSON Schema: {error}. Look-around and back-references are not supported.")
        raise BadSchema(text, error=said) from error

    def check(content: bytes, content_type: str) -> Iterator[Fault]:
        try:
            text = selecting.json_document(content)
            for _ in json_text.tokens(text):
                pass
            document = json.loads(text)
        except (selecting.Unreadable, json_text.BadJson):
            yield Fault(0, 0, "", "It is not valid JSON.")
            return
        except (RecursionError, ValueError):
            yield Fault(0, 0, "", "It is nested too deeply, or has too long a number, to be checked.")
            return
        for error in validator.iter_errors(document):
            line, column = _place(text, error.instance_path)
            said = error.message[:1].upper() + error.message[1:]
            yield Fault(line, column, _json_path(error.instance_path), f"{said[:300]}.")

    return check


def _json_path(path: Sequence[str | int]) -> str:
    steps = (
        f"[{step}]" if isinstance(step, int) else f".{step}" if re.fullmatch(r"\w+", step) else f"[{step!r}]"
        for step in path
    )
    return "$" + "".join(steps)


def _place(text: str, path: Sequence[str | int]) -> tuple[int, int]:
    """(line, column) of the value that the path leads to, both from 1 on."""
    at = selecting.json_begin(text, path)
    return text.count("\n", 0, at) + 1, at - (text.rfind("\n", 0, at) + 1) + 1


# --- EDIFACT and X12 ---


def _edi(files: Files) -> Check:
    if len(files) > 1:
        raise BadSchema(gettext_noop("The list of segments is one file."))
    ((name, text),) = files.items()
    try:
        guide = edi_messages.read(text)
    except ValueError as error:
        raise BadSchema("{name}, {error}", name=name, error=error) from error

    def check(content: bytes, content_type: str) -> Iterator[Fault]:
        try:
            yield from edi_messages.faults(selecting.decoded(content, content_type), guide)
        except selecting.Unreadable as error:
            yield _unreadable(error)

    return check


def _unreadable(error: selecting.Unreadable) -> Fault:
    cause = error.__cause__
    line, column = cause.position if isinstance(cause, etree.XMLSyntaxError) and cause.position[0] else (0, 0)
    return Fault(line, column, "", f"{str(error)[:1].upper()}{str(error)[1:]}.")


_READ: Mapping[str, Callable[[Files], Check]] = {"xml": _xml, "json": _json, "edi": _edi}
