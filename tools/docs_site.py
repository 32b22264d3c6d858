"""What MkDocs calls while it builds the site: it adds pages, follows links, writes `llms.txt`."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGES = {
    f"{name}.md": f"project/{name.lower()}.md"
    for name in ("README", "ARCHITECTURE", "CONTRIBUTING", "CHANGELOG")
}
"""Pages of the repository outside `docs` -> where they are on the site."""

_LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?![a-z]+:)([^)#\s]+)(#[^)\s]*)?\)")
_FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_LOADED = re.compile(r"<(?:script|link|img|iframe)\b[^>]*?\b(?:src|href)=[\"']?((?:https?:)?//[^\"'\s>]+)")


def place_of(path: str, root: Path = ROOT) -> str | None:
    """Return where a path of the repository is on the site, or None."""
    inside = PAGES.get(path) or path.removeprefix("docs/") * path.startswith("docs/")
    if (root / path).is_dir() and (root / path / "index.md").exists():
        inside += "/index.md"
    return inside if inside.endswith(".md") else None


def with_links_of_the_site(text: str, page: str, root: Path = ROOT) -> str:
    """Return the text of a page of the repository with links to where the pages are on the site.

    A link to a path that is not on the site, such as a folder of rules, becomes its text. A link to a path
    that does not exist stays, so MkDocs finds it.
    """
    place = place_of(page, root)
    assert place is not None

    def link(match: re.Match[str]) -> str:
        words, target, anchor = match.groups()
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page), target))
        if not (root / path).exists():
            return match[0]
        inside = place_of(path, root)
        if inside is None:
            return words
        return f"[{words}]({posixpath.relpath(inside, posixpath.dirname(place))}{anchor or ''})"

    parts = _FENCED.split(text)
    parts[::2] = [_LINK.sub(link, part) for part in parts[::2]]
    return "".join(parts)


def summary(text: str) -> str:
    """Return the first sentence of a page's text, without its links."""
    paragraphs = _FENCED.sub("", text).split("\n\n")
    prose = next(" ".join(part.split()) for part in paragraphs if re.match(r"[\w*`\[]", part))
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", prose)
    return re.sub(r":$", ".", re.split(r"(?<=[.:])\s(?=[A-Z`])", plain)[0])


def loaded_from_elsewhere(html: str) -> str | None:
    """Return the first address of another host that a page would load something from, or None."""
    found = _LOADED.search(html)
    return found[1] if found else None


def _entries(items: list[Any], section: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each page of a navigation with the name of its outermost section."""
    for item in items:
        if item.is_section:
            yield from _entries(item.children, section or item.title)
        else:
            yield section, item


_summaries: dict[str, str] = {}
_nav: list[Any] = []


def on_files(files: Any, *, config: Any) -> Any:
    """Add the pages from outside `docs`."""
    from mkdocs.structure.files import File

    for path, place in PAGES.items():
        files.append(File.generated(config, place, content=(ROOT / path).read_text(encoding="utf-8")))
    return files


def on_nav(nav: Any, **_: Any) -> None:
    """Keep the navigation for `llms.txt`."""
    _nav[:] = nav.items


def on_page_markdown(text: str, *, page: Any, **_: Any) -> str:
    """Return the text with links of the site, and keep its first sentence for `llms.txt`."""
    place = page.file.src_uri
    _summaries[place] = summary(text)
    paths = {place: path for path, place in PAGES.items()}
    return with_links_of_the_site(text, paths.get(place, f"docs/{place}"))


def on_page_content(html: str, **_: Any) -> str:
    """Return the page with `|` for what must be written as ``\\|`` in a table, and anchors of codes."""
    html = re.sub(r"<td.*?</td>", lambda cell: cell[0].replace("\\|", "|"), html, flags=re.DOTALL)
    return re.sub(r'<h3 id="([ew]\d{4})-', r'<a id="\1"></a>\g<0>', html)


def on_post_page(output: str, *, page: Any, **_: Any) -> None:
    """Refuse a page that would load something from another host.

    Raises
    ------
    PluginError
        With the address.
    """
    from mkdocs.exceptions import PluginError

    if address := loaded_from_elsewhere(output):
        raise PluginError(f"{page.file.src_uri} loads {address}: the site must load nothing from other hosts")


def on_post_build(*, config: Any) -> None:
    """Write `llms.txt`: the title, the address and one sentence of each page of the navigation."""
    lines = [f"# {config.site_name}", "", f"> {config.site_description}"]
    for section, pages in groupby(_entries(_nav), key=itemgetter(0)):
        lines += ["", *([f"## {section}", ""] if section else [])]
        lines += [
            f"- [{page.title}]({page.canonical_url or page.url or './'}): {_summaries[page.file.src_uri]}"
            for _, page in pages
        ]
    Path(config.site_dir, "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
