"""The shop's pages as HTML."""

from __future__ import annotations

from html import escape

from tasks.demo.catalogue import Catalogue, Product

STYLE = """
:root { color-scheme: light; --ink: #1d2b36; --soft: #5b6b78; --sea: #0f5c72;
  --sand: #f6f1e7; --line: #e3dccd; }
* { box-sizing: border-box; }
body { margin: 0; background: var(--sand); color: var(--ink);
  font: 17px/1.55 Georgia, 'Times New Roman', serif; }
header { background: var(--sea); color: #fff; padding: 1.1rem 2rem;
  font-size: 1.5rem; letter-spacing: .03em; }
header a { color: inherit; text-decoration: none; }
main { max-width: 880px; margin: 2rem auto; padding: 0 1.5rem; }
h1 { font-weight: normal; font-size: 1.7rem; margin: 0 0 1rem; }
.notice { background: #fff8dc; border: 1px solid #ead79a; border-left: 6px solid #d9a514; border-radius: 6px;
  padding: .9rem 1.2rem; margin: 0 0 1.8rem; }
.shelf { display: grid; grid-template-columns: repeat(auto-fill, minmax(190px, 1fr)); gap: 1.1rem; }
.card, .panel { background: #fff; border: 1px solid var(--line); border-radius: 10px; padding: 1.2rem;
  box-shadow: 0 1px 3px rgba(40, 50, 60, .07); }
.card::before, .panel.thing::before { content: ''; display: block; height: 96px; margin: -.4rem -.4rem .9rem;
  border-radius: 7px; background: linear-gradient(135deg, var(--tint), #fff 140%); }
.panel.thing::before { height: 170px; }
.card a { color: var(--sea); font-size: 1.08rem; }
.price { color: var(--soft); }
.button, button { display: inline-block; background: var(--sea); color: #fff; border: 0; border-radius: 7px;
  padding: .65rem 1.3rem; font: inherit; text-decoration: none; cursor: pointer; }
.button:hover, button:hover { filter: brightness(1.15); }
label { display: block; margin-bottom: .35rem; }
input { font: inherit; padding: .55rem .7rem; border: 1px solid #b8c3ca; border-radius: 7px;
  width: 16rem; max-width: 100%; }
.error { color: #9b2c1d; } form > * + * { margin-top: 1rem; }
"""
TINTS = {
    "Blue": "#5d8fc4", "Green": "#6fa57a", "Red": "#c4655d",
    "Yellow": "#dcbf5a", "White": "#d9d6cc", "Grey": "#94a0a8",
}  # fmt: skip


def _page(title: str, body: str) -> str:
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head>'
        f'<body><header><a href="/">Harbour Shop</a></header><main>{body}</main></body></html>'
    )


def _tint(product: Product) -> str:
    return TINTS[product.name.split()[0]]


def home(shop: Catalogue) -> str:
    """The shelf, and the notice with the pickup code: the only page that shows it."""
    cards = "".join(
        f'<div class="card" style="--tint: {_tint(p)}"><a href="/product/{p.slug}">{escape(p.name)}</a></div>'
        for p in shop.products
    )
    notice = f'<p class="notice">Notice: the pickup code is {escape(shop.code)}. You will need it to order.</p>'
    return _page("Harbour Shop", f'{notice}<h1>Our shelf</h1><div class="shelf">{cards}</div>')


def product(item: Product) -> str:
    """One product with the link to its order form."""
    return _page(
        item.name,
        f'<div class="panel thing" style="--tint: {_tint(item)}"><h1>{escape(item.name)}</h1>'
        f'<p>{escape(item.text)}</p><p class="price">{item.price} euros</p>'
        f'<a class="button" href="/order/{item.slug}">Order this</a></div>',
    )


def order(item: Product, problem: str = "") -> str:
    """The order form; ``problem`` says why the last try was refused."""
    error = f'<p class="error" role="alert">{escape(problem)}</p>' if problem else ""
    return _page(
        f"Order: {item.name}",
        f'<div class="panel"><h1>Order: {escape(item.name)}</h1>{error}'
        f'<form method="post" action="/order/{item.slug}"><div><label for="code">Pickup code</label>'
        '<input id="code" name="code" autocomplete="off"></div><button>Place order</button></form></div>',
    )


def done(item: Product, number: int) -> str:
    """The confirmation."""
    return _page(
        "Thank you",
        f'<div class="panel"><h1>Thank you!</h1><p>Order number {number}: {escape(item.name)}. '
        "It is ready for pickup at the harbour.</p></div>",
    )


def missing() -> str:
    """Any other address."""
    return _page("Not found", "<h1>This page is not here</h1><p>The shelf is on the home page.</p>")
