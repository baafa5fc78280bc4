"""What the pages of a Postmill forum say (the official benchmark's "reddit")."""

from __future__ import annotations

from urllib.parse import urlsplit

from tasks.vwa.evaluators.page import Page

#: The newest comment of a user: its text and who wrote what it answers (a comment, else the post).
LATEST = """user => {
  const author = node => node.querySelector('.fg-inherit')?.innerText ?? '';
  const time = node => Date.parse(node.querySelector('.comment__main > header > h1 > span > time').dateTime);
  const main = document.querySelector('#main');
  const own = [...main.querySelectorAll('.comment')].filter(node => author(node) === user);
  if (!own.length) return null;
  const newest = own.reduce((best, node) => time(node) > time(best) ? node : best);
  const above = newest.parentElement.closest('.comment') ?? main;
  return {text: newest.querySelector('.comment__content').innerText, parent: author(above)};
}"""


def latest_comment(page: Page, user: str) -> str:
    """Text of the newest comment a user wrote under this post, "" if there is none."""
    found = page.evaluate(LATEST, user)
    return str(found["text"]) if found else ""


def parent_of_latest_comment(page: Page, user: str) -> str:
    """Who wrote what the user's newest comment answers, "" if there is no such comment."""
    found = page.evaluate(LATEST, user)
    return str(found["parent"]) if found else ""


def post_url(url: str) -> str:
    """Address of the post that a page (its own, or one of a comment) belongs to; other addresses as they are."""
    parts = urlsplit(url)
    path = parts.path.split("/")
    if len(path) < 4 or path[1] != "f":
        return url
    return f"{parts.scheme}://{parts.netloc}/f/{path[2]}/{path[3]}/"
