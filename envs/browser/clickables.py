"""Things a page makes clickable without saying so: spans, divs and icons with listeners.

Playwright's snapshot gives no reference to them. While it is taken, a constructed style sheet (no node of the
page is touched) puts marks around them by way of generated content; the marks come back in the snapshot's
text, in place and in order, and are replaced by lines with ids.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from playwright.sync_api import Error, Page

OPEN, MID, CLOSE = "\ue000", "\ue001", "\ue002"
MARKED = re.compile(f"{OPEN}(\\d+){MID}(.*?){CLOSE}")
ANY_MARK = re.compile(f"{OPEN}\\d+{MID}|{CLOSE}")

WATCH = """(() => {
  const key = Symbol.for('clickables');
  const kinds = new Set(['click', 'mousedown', 'mouseup', 'pointerdown', 'dblclick']);
  if (window[key]) return;
  const seen = new WeakSet(), add = EventTarget.prototype.addEventListener;
  Object.defineProperty(window, key, {value: {seen, sheet: null}});
  EventTarget.prototype.addEventListener = function (kind, ...rest) {
    if (kinds.has(kind) && this instanceof Element) seen.add(this);
    return add.call(this, kind, ...rest);
  };
})()"""
"""Run before the page's own scripts: remembers which elements were given a listener."""

MARK = """([open, mid, close]) => {
  const state = window[Symbol.for('clickables')];
  if (!state || !document.body) return [];
  const native = 'a[href],button,input,select,textarea,option,label,summary,iframe,audio,video,' +
    '[role=button],[role=link],[role=checkbox],[role=radio],[role=tab],[role=menuitem],[role=option],' +
    '[role=textbox],[role=combobox],[role=switch],[role=slider],[role=spinbutton],[role=treeitem]';
  const all = [...document.body.querySelectorAll('*')].slice(0, 6000), chosen = new Set();
  const pointer = e => getComputedStyle(e).cursor === 'pointer';
  for (let i = all.length - 1; i >= 0; i--) {  // children before their parents
    const e = all[i];
    const editable = e.hasAttribute('contenteditable') && e.isContentEditable;
    const listens = state.seen.has(e) || e.onclick || e.onmousedown || e.onmouseup || e.onpointerdown;
    const focusable = e.hasAttribute('tabindex') && e.tabIndex >= 0;
    if (!listens && !editable && !focusable && getComputedStyle(e).display !== 'inline') continue;
    if (e.namespaceURI !== 'http://www.w3.org/1999/xhtml' || e.tagName === 'CANVAS') continue;
    if (e.closest(native)) continue;
    const root = pointer(e) && !(e.parentElement && pointer(e.parentElement));
    const inline = getComputedStyle(e).display === 'inline';
    if (root && !inline && !editable) continue;  // the snapshot shows it by itself
    if (!listens && !editable && !focusable && !root) continue;
    const box = e.getBoundingClientRect();
    if (!editable && (box.width < 2 || box.height < 2)) continue;
    if (getComputedStyle(e).visibility !== 'visible') continue;
    if (e.querySelector(native) || [...chosen].some(c => e.contains(c))) continue;
    chosen.add(e);
    if (chosen.size >= 300) break;
  }
  const path = e => {
    const steps = [];
    for (; e.parentElement; e = e.parentElement)
      steps.unshift(`*:nth-child(${[...e.parentElement.children].indexOf(e) + 1})`);
    return ':root > ' + steps.join(' > ');
  };
  const colour = e => {
    const style = getComputedStyle(e);
    const [r, g, b, a] = (style.backgroundColor.match(/[\\d.]+/g) || []).map(Number);
    if (r === undefined || a === 0 || style.backgroundImage !== 'none') return '';
    const named = {black: [0,0,0], white: [255,255,255], red: [255,0,0], lime: [0,255,0], blue: [0,0,255],
      yellow: [255,255,0], cyan: [0,255,255], magenta: [255,0,255], grey: [128,128,128], maroon: [128,0,0],
      olive: [128,128,0], green: [0,128,0], purple: [128,0,128], teal: [0,128,128], navy: [0,0,128],
      orange: [255,165,0], pink: [255,192,203], brown: [165,42,42]};
    const near = Object.keys(named).find(n => named[n].every((v, i) => Math.abs(v - [r, g, b][i]) < 24));
    if (near) return near;
    const high = Math.max(r, g, b), low = Math.min(r, g, b), light = (high + low) / 510;
    const tone = light < 0.3 ? 'dark ' : light > 0.75 ? 'light ' : '';
    if (high - low < 30) return tone + 'grey';
    const part = high === r ? ((g - b) / (high - low) + 6) % 6
      : high === g ? (b - r) / (high - low) + 2 : (r - g) / (high - low) + 4;
    const wheel = ['red', 'orange', 'yellow', 'green', 'green', 'green', 'cyan', 'blue', 'blue', 'purple',
      'magenta', 'pink', 'red'];
    return tone + wheel[Math.round(part * 2)];
  };
  const found = [], rules = [];
  for (const e of all) {
    if (!chosen.has(e)) continue;
    const text = e.innerText.trim(), style = getComputedStyle(e), words = `${e.className} ${e.id}`;
    const editable = e.isContentEditable, inline = style.display === 'inline';
    const role = editable ? 'textbox' :
      /\\b(btn|button)/i.test(words) ? 'button' :
      inline && text ? 'link' : 'clickable';
    const said = e.getAttribute('aria-label') || e.title || e.querySelector('img[alt]')?.alt || '';
    const own = (typeof e.className === 'string' ? e.className : '') || e.id;
    const words3 = [...new Set(own.split(/[-_\\s]+/).filter(w => w))].slice(0, 3).join(' ');
    const hint = said || (text && !editable ? '' : [words3, colour(e)].filter(w => w).join(' '));
    const where = path(e), number = found.length;
    found.push({path: where, role, hint: hint.slice(0, 60)});
    rules.push(`${where}::before { content: "${open}${number}${mid}" !important; font-size: 0 !important; }`,
               `${where}::after { content: "${close}" !important; font-size: 0 !important; }`);
  }
  if (rules.length) {
    state.sheet = new CSSStyleSheet();
    state.sheet.replaceSync(rules.join('\\n'));
    document.adoptedStyleSheets = [...document.adoptedStyleSheets, state.sheet];
  }
  return found;
}"""

UNMARK = """() => {
  const state = window[Symbol.for('clickables')];
  if (!state || !state.sheet) return;
  document.adoptedStyleSheets = document.adoptedStyleSheets.filter(sheet => sheet !== state.sheet);
}"""


@dataclass(frozen=True)
class Clickable:
    """A marked element: a CSS path to it, how it is announced, and a hint for when it has no text."""

    path: str
    role: str
    hint: str


def marked_snapshot(page: Page, timeout: float) -> tuple[str, list[Clickable]]:
    """The page's snapshot with marks around the elements in the returned list (by number)."""
    try:
        found = [Clickable(**item) for item in page.evaluate(MARK, [OPEN, MID, CLOSE])]
    except Error:
        found = []  # navigating away right now; the snapshot alone will do
    try:
        return page.aria_snapshot(mode="ai", timeout=timeout), found
    finally:
        if found:
            page.evaluate(UNMARK)


def unmarked(text: str) -> str:
    """The text without marks."""
    return " ".join(ANY_MARK.sub(" ", text).split())
