"""Repositories of the loopback Hub, in memory: commits, branches, tags, discussions, pull requests.

Git's ideas without git: a commit is a whole tree (path to blob) with one parent, or two where a
pull request was merged. Nothing here knows HTTP; what the Hub would refuse raises `Refused`.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property

MAIN = "main"


class Refused(Exception):
    """The Hub says no: `status`, its error code for clients (`X-Error-Code`), what it says."""

    def __init__(self, status: int, message: str, code: str = "") -> None:
        super().__init__(message)
        self.status, self.message, self.code = status, message, code


@dataclass(frozen=True)
class Blob:
    """A file's bytes. `lfs`: kept in the large-file storage, git only holds a pointer."""

    data: bytes
    lfs: bool = False

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    @cached_property
    def pointer(self) -> bytes:
        return (
            f"version https://git-lfs.github.com/spec/v1\n"
            f"oid sha256:{self.sha256}\nsize {len(self.data)}\n"
        ).encode()

    @cached_property
    def git_oid(self) -> str:
        content = self.pointer if self.lfs else self.data
        return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()

    @property
    def etag(self) -> str:
        return self.sha256 if self.lfs else self.git_oid


Tree = Mapping[str, Blob]


@dataclass(frozen=True)
class Commit:
    oid: str
    parents: tuple[str, ...]
    tree: Tree
    title: str
    message: str
    author: str
    date: datetime


@dataclass
class Discussion:
    """A discussion, or a pull request (`base` is then the commit that it was opened from)."""

    num: int
    title: str
    author: str
    created_at: datetime
    status: str
    base: str | None = None
    merged_as: str | None = None
    events: list[dict[str, object]] = field(default_factory=list)

    @property
    def is_pull_request(self) -> bool:
        return self.base is not None

    @property
    def ref(self) -> str:
        return f"refs/pr/{self.num}"


class Repo:
    """One repository of a kind (`model`, `dataset`, `space`)."""

    def __init__(self, kind: str, id: str, creator: str, private: bool = False) -> None:
        self.kind, self.id, self.private = kind, id, private
        self.created_at = now()
        self.commits: dict[str, Commit] = {}
        self.refs: dict[str, str] = {}  #: `main`, other branches, `refs/pr/N`: to a commit
        self.tags: dict[str, str] = {}
        self.discussions: list[Discussion] = []
        self.busy = False  #: a commit is being written: another one gets 409
        self._serial = itertools.count()
        first = {".gitattributes": Blob(b"*.parquet filter=lfs diff=lfs merge=lfs -text\n")}
        self.add_commit(MAIN, first, (), "initial commit", "", creator)

    @property
    def namespace(self) -> str:
        return self.id.split("/")[0]

    @property
    def head(self) -> Commit:
        return self.commits[self.refs[MAIN]]

    def resolve(self, revision: str) -> Commit:
        """The commit that a branch, tag, pull request, or (shortened) commit hash means."""
        name = revision.removeprefix("refs/heads/").removeprefix("refs/tags/")
        oid = self.refs.get(name) or self.tags.get(name)
        if oid is None and len(name) >= 7:
            found = [known for known in self.commits if known.startswith(name)]
            oid = found[0] if len(found) == 1 else None
        if oid is None:
            raise Refused(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        return self.commits[oid]

    def history(self, commit: Commit) -> Iterator[Commit]:
        """The commit and its first parents, newest first."""
        yield commit
        while commit.parents:
            commit = self.commits[commit.parents[0]]
            yield commit

    def add_commit(
        self,
        ref: str,
        tree: Tree,
        parents: tuple[str, ...],
        title: str,
        message: str,
        author: str,
    ) -> Commit:
        """A commit with `tree`, to which `ref` then points."""
        content = [f"{path} {blob.git_oid}" for path, blob in sorted(tree.items())]
        identity = "\n".join([self.id, *parents, title, str(next(self._serial)), *content])
        oid = hashlib.sha1(identity.encode()).hexdigest()
        commit = Commit(oid, parents, dict(tree), title, message, author, now())
        self.commits[oid] = commit
        self.refs[ref] = oid
        return commit

    def open_discussion(self, title: str, author: str, base: str | None, status: str) -> Discussion:
        number = len(self.discussions) + 1
        discussion = Discussion(number, title, author, now(), status, base)
        self.discussions.append(discussion)
        if base is not None:
            self.refs[discussion.ref] = base
        return discussion

    def discussion(self, number: int) -> Discussion:
        if not 1 <= number <= len(self.discussions):
            raise Refused(404, f"No discussion {number}")
        return self.discussions[number - 1]

    def conflicts(self, pull: Discussion) -> list[str]:
        """Paths changed both on main and by the pull request since it was opened, differently."""
        assert pull.base is not None
        base, ours = self.commits[pull.base].tree, self.head.tree
        theirs = self.commits[self.refs[pull.ref]].tree
        ours_changed = changed(base, ours)
        return sorted(
            path
            for path in changed(base, theirs)
            if path in ours_changed and ours.get(path) != theirs.get(path)
        )

    def merge(self, pull: Discussion, author: str) -> Commit:
        """Merges an open pull request into main; conflicts are refused."""
        if pull.status not in ("open", "draft"):
            raise Refused(409, f"This pull request is {pull.status}")
        if conflicts := self.conflicts(pull):
            raise Refused(409, f"Conflicts in {', '.join(conflicts)}")
        assert pull.base is not None
        base = self.commits[pull.base].tree
        theirs = self.commits[self.refs[pull.ref]].tree
        tree = dict(self.head.tree)
        for path in changed(base, theirs):
            if path in theirs:
                tree[path] = theirs[path]
            else:
                tree.pop(path, None)
        parents = (self.head.oid, self.refs[pull.ref])
        title = f"{pull.title} (#{pull.num})"
        commit = self.add_commit(MAIN, tree, parents, title, "", author)
        pull.status, pull.merged_as = "merged", commit.oid
        return commit


def changed(old: Tree, new: Tree) -> set[str]:
    """Paths that were added, removed or changed."""
    return {path for path in {*old, *new} if old.get(path) != new.get(path)}


def now() -> datetime:
    return datetime.now(UTC)
