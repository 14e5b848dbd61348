"""Which records a view keeps: a predicate over the tags of a record, as topic settings say it.

A record's tags are the values of its `headrace.tag` headers, in UTF-8; it may have any number of them. Values without a
text (null, or no UTF-8) tag nothing. A record without tags matches `none`, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b

from msgspec import Struct

TAG_HEADER = "headrace.tag"
MOST_TAGS = 64  # of a filter
MATCHES = ("any", "all", "none")
VIEW_OF, VIEW_TAGS, VIEW_MATCH = "headrace.view.of", "headrace.view.tags", "headrace.view.match"
VIEW_USED = "headrace.view.used"  # changes while a shared view is needed
VIEW_PREFIX = "headrace.view."
TAGS_ENABLE = "headrace.tags.enable"


class TagFilter(Struct, frozen=True):
    """Any, all or none of these tags."""

    tags: tuple[str, ...]
    match: str = "any"

    def __post_init__(self) -> None:
        if self.match not in MATCHES:
            raise ValueError(f"match is {self.match!r}: choose from {', '.join(MATCHES)}")
        for tag in self.tags:
            if not tag or tag != tag.strip() or "," in tag:
                raise ValueError(f"{tag!r} cannot be filtered by: a tag is not empty and has no comma or outer spaces")
        if not 1 <= len(self.tags) <= MOST_TAGS:
            raise ValueError(f"a filter has at least one tag and at most {MOST_TAGS}, not {len(self.tags)}")

    def accepts(self, tags: Iterable[str]) -> bool:
        """Whether a record with these tags is kept."""
        wanted, has = set(self.tags), set(tags)
        if self.match == "any":
            return not wanted.isdisjoint(has)
        return wanted <= has if self.match == "all" else wanted.isdisjoint(has)

    def settings(self, base: str) -> dict[str, str]:
        """The topic settings of a view of `base` by this filter."""
        return {VIEW_OF: base, VIEW_TAGS: ",".join(self.tags), VIEW_MATCH: self.match}

    def view_name(self, base: str) -> str:
        """The name that all clients with this filter share: the order of the tags means nothing."""
        said = "\0".join([self.match, *sorted(set(self.tags))])
        return f"{base}.view.{blake2b(said.encode(), digest_size=8).hexdigest()}"


def tag_filter(settings: Mapping[str, str]) -> TagFilter:
    """The filter of a view's settings; ValueError says what is wrong with them."""
    parts = (part.strip() for part in settings.get(VIEW_TAGS, "").split(","))
    tags = tuple(dict.fromkeys(part for part in parts if part))
    if not tags:
        raise ValueError(f"a view needs {VIEW_TAGS}, with at least one tag")
    return TagFilter(tags, settings.get(VIEW_MATCH, "any"))
