"""The report builder: well formed, self-contained, and deaf to hostile names."""

from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcircuits.app.report import Answers, Heading, Paragraph, Picture, TextTable, page, write

VOID = {"meta", "img", "br"}
HOSTILE = "<script>alert('x')</script> & \"quoted\" </td></table>"


class Outline(HTMLParser):
    """Tags, texts and attributes of a page; refuses tags that do not close in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.words: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [v or "" for k, v in attrs if k in ("src", "href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def outline(text: str) -> Outline:
    found = Outline()
    found.feed(text)
    found.close()
    assert found.open == []
    return found


def everything(text: str) -> str:
    return page(
        text,
        [
            Heading(text),
            Paragraph(text),
            Answers([(text, text)]),
            TextTable((text, text), [(text, text)], text),
            Picture(b"\x89PNG", text),
        ],
    )


def test_hostile_names_are_shown_not_run() -> None:
    found = outline(everything(HOSTILE))
    assert "script" not in found.tags and found.tags.count("table") == 1
    assert found.words.count(HOSTILE) == 12


@given(st.text(min_size=1))
def test_any_text_gives_the_same_tags(text: str) -> None:
    assert outline(everything(text)).tags == outline(everything("plain")).tags


def test_a_page_loads_nothing() -> None:
    found = outline(everything("plain"))
    assert found.links and all(link.startswith("data:image/png;base64,") for link in found.links)


def test_columns_after_the_texts_are_numbers() -> None:
    shown = page("t", [TextTable(("to", "what", "bytes"), [("a", "b", "1")], texts=2)])
    assert shown.count('class="number"') == 2 and '<td class="number">1</td>' in shown


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write(path, b"old")
    with pytest.raises(TypeError):
        write(path, "text is not bytes")  # type: ignore[arg-type]
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
