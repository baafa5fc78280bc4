"""From snapshot text to lines, without a browser."""

from __future__ import annotations

from envs.browser.clickables import CLOSE, MID, OPEN, Clickable
from envs.browser.ids import Ids
from envs.browser.snapshot import LINE, render
from envs.browser.tree import clean, nameless, parse
from envs.browser.window import Window


def lines_of(snapshot: str, marked: list[Clickable] | None = None) -> list[str]:
    return render(parse(snapshot), Ids().page("http://a/b"), marked)[0]


def test_quoted_lines_and_values():
    snapshot = """
- generic [active] [ref=e1]:
  - 'link "Tab #1: \\"x\\"" [ref=e2] [cursor=pointer]':
    - /url: "#t"
  - text: "a: b"
  - textbox "Name" [ref=e3]: it's
  - checkbox "Tea" [checked] [ref=e4]
  - text: Tea
  - button "Off" [disabled] [ref=e5]
"""
    assert lines_of(snapshot) == [
        "link \"Tab #1: 'x'\" [e1]",
        "a: b",
        'textbox "Name" [e2] value "it\'s"',
        'checkbox "Tea" [e3] (checked)',
        'button "Off" [e4] (disabled)',
    ]


def test_a_very_deep_tree_is_no_problem():
    depth = 3000
    snapshot = "\n".join("  " * n + f"- generic [ref=e{n}]:" for n in range(depth))
    snapshot += "\n" + "  " * depth + '- button "Deep" [ref=e9999]'
    assert lines_of(snapshot) == ['button "Deep" [e1]']


def test_marked_text_becomes_an_element_in_place():
    marks = [Clickable(":root > a", "link", ""), Clickable(":root > b", "clickable", "trash")]
    text = f"one {OPEN}0{MID}two{CLOSE} three"
    row = f"Ann says hi {OPEN}1{MID}{CLOSE}"
    snapshot = f"- paragraph [ref=e1]: {text}\n- generic [ref=e2] [cursor=pointer]: {row}"
    assert lines_of(snapshot, marks) == [
        "one",
        'link "two" [e1]',
        "three",
        'clickable "Ann says hi" [e2]',
        'clickable "trash" [e3]',
    ]


def test_ids_depend_on_page_role_name_and_place():
    ids = Ids()
    first = ids.page("http://a/b?q=1#x")
    assert [first("link", "A"), first("link", "A"), first("button", "A")] == ["e1", "e2", "e3"]
    other = ids.page("http://a/c")
    assert other("link", "A") == "e4"
    again = ids.page("http://a/b")
    assert [again("link", "A"), again("button", "A"), again("link", "A")] == ["e1", "e3", "e2"]
    assert ids.label("e4") == 'link "A"' and ids.label("e9") == ""


def test_clean_drops_what_breaks_text():
    assert clean("a\x00b\ud800 c\n\td") == "a b c d"


def test_the_window_keeps_to_the_cap():
    window = Window(100, lambda text: len(text.split()))
    lines = [f"w{n} " * 5 for n in range(50)]
    text = window.show(["head"], lines, "u")
    assert len(text.split()) <= 100 and "are cut; scroll down" in text
    assert not window.scroll("up") and window.scroll("down")
    assert "scroll up to see them" in window.show(["head"], lines, "u")
    assert window.show(["head"], lines, "other").splitlines()[1] == lines[0]
    assert Window(1000, len).show(["h"], ["a", "b"], "u") == "h\na\nb"
    assert len(Window(50, len).show(["h"], ["x" * 5000], "u")) < 300


def test_a_field_without_a_name_takes_the_text_before_it():
    snapshot = '- paragraph [ref=e1]:\n  - text: "User:"\n  - textbox [ref=e2]\n- textbox [ref=e3]'
    assert lines_of(snapshot) == ['textbox "User" [e1]', "textbox [e2]"]


def test_nameless_controls_are_those_that_say_nothing():
    snapshot = """
- button "Named" [ref=e1]
- button [ref=e2]
- button [ref=e3]: Text
- textbox [ref=e4]
- generic [ref=e5] [cursor=pointer]
- link [ref=e6]:
  - /url: /x
"""
    assert [node.ref for node in nameless(parse(snapshot))] == ["e2", "e5"]


def test_a_quotation_mark_in_a_name_does_not_break_the_head_of_a_line():
    marked = [Clickable("div", "clickable", "")]
    nodes = parse(f'- text: {OPEN}0{MID}Say "hi"{CLOSE}\n- button "Say \\"no\\"" [ref=e1]')
    lines, elements = render(nodes, Ids().page("http://site.test/"), marked)
    assert lines == ["clickable \"Say 'hi'\" [e1]", "button \"Say 'no'\" [e2]"]
    assert [LINE.match(line)["id"] for line in lines] == ["e1", "e2"]
    assert [element.label for element in elements.values()] == lines


def test_parts_of_a_page_are_named_where_they_hold_something():
    snapshot = """
- banner [ref=e1]:
  - navigation "Shop \\"A\\"" [ref=e2]:
    - link "Home" [ref=e3]
- navigation [ref=e4]
- main [ref=e5]:
  - heading "Lamps" [ref=e6]
- contentinfo [ref=e7]
"""
    assert lines_of(snapshot) == [
        "Navigation \"Shop 'A'\":",
        'link "Home" [e1]',
        "Main part:",
        'heading "Lamps"',
    ]
