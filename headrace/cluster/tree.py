"""The versioned tree in memory: nodes, children, and the watches on them. No I/O.

`embedded.py` keeps two of these: the durable one (for readers), and the one after the commit in progress (for checking
the next write). The simulated ZooKeeper keeps one per session. Invariant: the parent of every node exists.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from headrace.cluster.store import (
    ANY_VERSION,
    BadVersion,
    Check,
    Create,
    Delete,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Set,
    Stat,
    Watch,
    parent_of,
)


class Node(Struct, frozen=True):
    data: bytes
    stat: Stat


class Edit(Struct, frozen=True):
    """One node's change; None means that the node does not exist."""

    path: str
    before: Node | None
    after: Node | None


_ROOT = Node(b"", Stat(version=0, czxid=0, mzxid=0, ephemeral_owner=0))


class Tree:
    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {"/": _ROOT}
        self._children: dict[str, set[str]] = {}

    def node(self, path: str) -> Node:
        found = self._nodes.get(path)
        if found is None:
            raise NoNode(path)
        return found

    def find(self, path: str) -> Node | None:
        return self._nodes.get(path)

    def children(self, path: str) -> list[str]:
        self.node(path)
        return sorted(self._children.get(path, ()))

    def put(self, path: str, node: Node | None) -> None:
        """Apply without any check; used to load the tree and to repeat edits."""
        parent, _, name = path.rpartition("/")
        siblings = self._children.setdefault(parent or "/", set())
        if node is None:
            self._nodes.pop(path, None)
            siblings.discard(name)
            self._children.pop(path, None)
        else:
            self._nodes[path] = node
            siblings.add(name)

    def copy(self) -> Tree:
        """An independent copy with the same nodes."""
        twin = Tree()
        twin._nodes = dict(self._nodes)
        twin._children = {path: set(names) for path, names in self._children.items()}
        return twin

    def undo(self, edits: Sequence[Edit]) -> None:
        for edit in reversed(edits):
            self.put(edit.path, edit.before)

    def apply(
        self, operations: Sequence[Operation], zxid: int, session_id: int
    ) -> tuple[list[Edit], list[Stat | None]]:
        """Applies all operations; or none, and raises the error of the first that fails."""
        edits: list[Edit] = []
        results: list[Stat | None] = []
        try:
            for operation in operations:
                edit = self._edit(operation, zxid, session_id)
                if edit is not None:
                    self.put(edit.path, edit.after)
                    edits.append(edit)
                results.append(edit.after.stat if edit is not None and edit.after is not None else None)
        except BaseException:
            self.undo(edits)
            raise
        return edits, results

    def _edit(self, operation: Operation, zxid: int, session_id: int) -> Edit | None:
        path = operation.path
        if isinstance(operation, Create):
            if path in self._nodes:
                raise NodeExists(path)
            self.node(parent_of(path))
            stat = Stat(0, zxid, zxid, session_id if operation.ephemeral else 0)
            return Edit(path, None, Node(operation.data, stat))
        before = self.node(path)
        if operation.version not in (ANY_VERSION, before.stat.version):
            raise BadVersion(path, f"{path} has version {before.stat.version}, not {operation.version}")
        if isinstance(operation, Check):
            return None
        if isinstance(operation, Delete):
            if self._children.get(path):
                raise NotEmpty(path)
            return Edit(path, before, None)
        assert isinstance(operation, Set)
        stat = Stat(before.stat.version + 1, before.stat.czxid, zxid, before.stat.ephemeral_owner)
        return Edit(path, before, Node(operation.data, stat))


class Watches:
    """The one-shot watches, by path."""

    def __init__(self) -> None:
        self._data: dict[str, list[Watch]] = {}
        self._children: dict[str, list[Watch]] = {}

    def on_data(self, path: str, watch: Watch | None) -> None:
        if watch is not None:
            self._data.setdefault(path, []).append(watch)

    def on_children(self, path: str, watch: Watch | None) -> None:
        if watch is not None:
            self._children.setdefault(path, []).append(watch)

    def fired_by(self, edits: Iterable[Edit]) -> list[tuple[Watch, str]]:
        """Removes and returns the watches that these edits fire, each with its path."""
        fired: list[tuple[Watch, str]] = []
        for edit in edits:
            fired += [(watch, edit.path) for watch in self._data.pop(edit.path, ())]
            if edit.before is None or edit.after is None:
                parent = parent_of(edit.path)
                fired += [(watch, parent) for watch in self._children.pop(parent, ())]
            if edit.after is None:
                fired += [(watch, edit.path) for watch in self._children.pop(edit.path, ())]
        return fired
