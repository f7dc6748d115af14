"""Places of JSON values, against texts of any layout."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from binpoint.support.json_text import JsonText, Path

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


def walk(value: Any, path: Path = ()) -> list[tuple[Path, Any]]:
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [(path, value), *(found for key, child in children for found in walk(child, (*path, key)))]


@settings(max_examples=50)
@given(values, st.sampled_from([None, 0, 2]), st.booleans())
def test_every_value_is_found_where_it_is_written(value: Any, indent: int | None, ascii_only: bool) -> None:
    source = JsonText(json.dumps(value, indent=indent, ensure_ascii=ascii_only), "f.json", "file")
    for path, expected in walk(source.data):
        place = source.place(path)
        assert place.line is not None
        assert place.column is not None
        line = source.text.split("\n")[place.line - 1]
        token = line[place.column - 1 : place.column - 1 + place.length]
        if isinstance(expected, dict | list):
            assert token == ("{" if isinstance(expected, dict) else "[")
        else:
            assert json.loads(token) == expected


def test_a_path_to_nothing_has_the_place_around_it() -> None:
    source = JsonText('{"a": [1, 2]}', "f.json", "file")
    assert source.place(("a", 7)) == source.place(("a",))
    assert source.place(("b", "c")) == source.place(())
