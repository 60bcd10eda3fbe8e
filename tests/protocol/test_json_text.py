"""JSON set out and covered as it is written: no number rounded, no member lost, nothing taken that is not JSON."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from messaging.protocol import json_text, masking
from messaging.protocol.json_text import MAX_DEPTH, BadJson
from messaging.protocol.masking import COVER

_SPACE = st.text(alphabet=" \t\n\r", max_size=2)
_NUMBER = st.from_regex(r"-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,3})?", fullmatch=True)
_STRING = st.text(max_size=6).flatmap(
    lambda text: st.sampled_from([json.dumps(text), json.dumps(text, ensure_ascii=False)])
) | st.sampled_from([r'"\/"', r'"\ud800"', r'"\uD83D\uDE00"', r'"\u202e"', '"a"', r'"\u0061"'])
_SCALAR = _NUMBER | _STRING | st.sampled_from(["true", "false", "null", "NaN", "-Infinity"])
_NAME = st.sampled_from(['"a"', '"b"', '"0"', r'"\u0061"']) | _STRING


def _listed(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    items = st.lists(st.tuples(_SPACE, inner, _SPACE).map("".join), max_size=4).map(",".join)
    members = st.lists(st.tuples(_SPACE, _NAME, _SPACE, st.just(":"), _SPACE, inner, _SPACE).map("".join), max_size=4)
    inside = members.map(",".join)
    return st.tuples(st.just("["), _SPACE, items, st.just("]")).map("".join) | st.tuples(
        st.just("{"), _SPACE, inside, st.just("}")
    ).map("".join)


DOCUMENTS = st.tuples(_SPACE, st.recursive(_SCALAR, _listed, max_leaves=12), _SPACE).map("".join)


class _Members(list[tuple[str, Any]]):
    """The members of an object, all of them, in their order."""


def _exact(text: str) -> Any:
    """A document with its numbers as they are written, and with names that come twice."""
    number = "number {}".format
    return json.loads(text, parse_float=number, parse_int=number, parse_constant=number, object_pairs_hook=_Members)


@given(DOCUMENTS)
@example('{"a": 1.10, "a": 12345678901234567890.123456789012345, "b": 1e400, "c": 0.0}')
@example(r'"\ud800"')
def test_a_document_set_out_is_the_same_document(text: str) -> None:
    made = json_text.set_out(text)
    assert _exact(made) == _exact(text)
    assert str(json.loads(made)) == str(json.loads(text))
    assert json_text.set_out(made) == made


_PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=15,
)


@given(_PLAIN, st.booleans(), st.sampled_from([None, 4]))
def test_it_is_laid_out_as_json_is(value: Any, ascii_only: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    assert json_text.set_out(text) == json.dumps(value, ensure_ascii=False, indent=2)


@given(st.text(alphabet='{}[],:"\\/ua01-+.eE \n\ttrufalsnNI', max_size=14) | DOCUMENTS.map(lambda text: text[:-1]))
@example("01")
@example("1.")
@example("[1,]")
@example('{"a":1,}')
@example("[}")
@example('{"a"}')
@example("{1:2}")
@example("[1 2]")
@example("\ufeff1")
@example('"\x01"')
@example(r'"\u00g0"')
@example("1 // one")
def test_it_takes_what_python_takes_and_nothing_else(text: str) -> None:
    try:
        json.loads(text)
    except ValueError:
        with pytest.raises(BadJson, match="not valid JSON"):
            json_text.set_out(text)
    else:
        json_text.set_out(text)


@pytest.mark.parametrize("coding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le"])
def test_documents_in_every_charset_of_unicode(coding: str) -> None:
    assert json_text.read('{"größe": "𝄞"}'.encode(coding)) == '{"größe": "𝄞"}'


def test_half_characters_never_leave() -> None:
    assert json_text.read(b'"\xed\xa0\xbd\xed\xb8\x80 \xed\xa0\x80"') == '"\U0001f600 \ufffd"'
    with pytest.raises(BadJson):
        json_text.read(b'"\xff"')


def test_depth_is_bounded_where_it_costs() -> None:
    deep = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert len(json_text.set_out(deep).splitlines()) == 2 * MAX_DEPTH - 1
    with pytest.raises(BadJson, match="too deeply"):
        json_text.set_out(f"[{deep}]")
    depth = 100_000
    content = ('{"a":' * depth + '"DE02"' + "}" * depth).encode()
    made, count = masking.cover(content, "json", ["$..b", "$" + ".a" * 5], text="")
    assert (count, made.decode()) == (1, '{"a":' * 5 + f'"{COVER}"' + "}" * 5)


@pytest.mark.parametrize(
    "text",
    [
        '"' + "a" * 300_000,
        '"' + r"\u0041" * 60_000,
        "1" * 300_000 + "x",
        "[" * 300_000,
        " " * 300_000 + "x",
        '{"a":' * 60_000,
        "[" + "1," * 150_000,
    ],
)
def test_what_is_broken_at_its_end_costs_no_more_than_its_length(text: str) -> None:
    began = time.process_time()
    with pytest.raises(BadJson):
        for _ in json_text.tokens(text):
            pass
    assert time.process_time() - began < 5, "linear: some tenths of a second; with steps back: minutes"


# ---- covering ----

PATHS = st.lists(
    st.sampled_from(["$.a", "$..a", "$.*", "$..b", "$.a.b", "$[0]", "$[*].a", "$..a..b", "$.a[1]", "$['0']", "$..*"]),
    min_size=1,
    max_size=3,
)


def _cover_slowly(value: Any, ways: list[list[str]]) -> Any:
    """The same by parsing: each way is what is left of a path, in the form that `_split` gives."""
    if isinstance(value, _Members):
        return _Members([(name, _child(inner, ways, name, None)) for name, inner in value])
    if isinstance(value, list):
        return [_child(inner, ways, None, position) for position, inner in enumerate(value)]
    return value


def _child(value: Any, ways: list[list[str]], name: str | None, position: int | None) -> Any:
    below = []
    for way in ways:
        step, rest = way[0], way[1:]
        word = step.lstrip(".")
        if step.startswith(".."):
            below.append(way)
        if (
            word == "*"
            or (name is not None and word.strip("'") == name)
            or (position is not None and word == str(position))
        ):
            if not rest:
                return COVER
            below.append(rest)
    return _cover_slowly(value, below)


def _split(path: str) -> list[str]:
    return (
        path[1:].replace("[", " .").replace("]", "").replace("..", " D").replace(".", " .").replace("D", "..").split()
    )


@given(DOCUMENTS, PATHS)
@example('{"a": 1, "a": {"b": 1.10}, "\\u0061": [1]}', ["$.a"])
def test_covering_leaves_all_else_as_it_is_written(text: str, paths: list[str]) -> None:
    made, count = masking.cover(text.encode(), "json", paths, text=text)
    assert _exact(made.decode()) == _cover_slowly(_exact(text), [_split(path) for path in paths])
    assert made.decode().count(COVER) - text.count(COVER) == count
    if count == 0:
        assert made.decode() == text
