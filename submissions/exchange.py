"""A results repository on the Hub: bundles come as pull requests, the lake goes there and back.

::

    bundles/<submission>/   bundles, as they were proposed and accepted
    lake/<part>/            parts of the lake, as they are here

`propose` hands a bundle in. `fetch` brings what was proposed into the inbox; `publish` answers the
pull requests (refused: with every reason; accepted: with a commit of the bundle) and tells of
re-grades; `sync` makes both lakes hold the same parts. A pull request is never merged: it may hold
more than the bundle that was read, and change after that; what goes to main is our own copy.
Parts never change and are named by what they hold, so all of it may be cut off anywhere and done
again: what stands there already is looked at first.
"""

from __future__ import annotations

import re
import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow.parquet as pq

from kernelmark.benchmark.errors import InfrastructureError
from kernelmark.benchmark.hub import Say, try_again
from kernelmark.evaluators.campaigns.files import read_json, write_json
from kernelmark.submissions.bundle import FILES, MANIFEST, file_sha256
from kernelmark.submissions.home import Home
from kernelmark.submissions.inbox import new_staging, place
from kernelmark.submissions.lake import MANIFEST as PART
from kernelmark.submissions.lake import commit_part, exclusive, parts, read_part, sweep
from kernelmark.submissions.tables import SCHEMAS
from kernelmark.submissions.trust import WAIT_S
from kernelmark.submissions.validation import (
    MAX_FILE_BYTES,
    MAX_MANIFEST_BYTES,
    Problem,
    read_bundle,
    shown,
)

if TYPE_CHECKING:
    from huggingface_hub import HfApi

_ID = re.compile(r"[0-9a-f]{64}")
_PART_NAME = re.compile(r"[a-z]+-[0-9a-f]{32}")
#: files a commit; the Hub takes more, but a commit that fails is done again as a whole
_FILES_A_COMMIT = 400
_SHOWN_PROBLEMS = 50

#: a bundle in a pull request: its revision, and sizes by file name
_Offer = tuple[str, Mapping[str, int]]

T = TypeVar("T")


@dataclass(frozen=True)
class Proposed:
    """A bundle that was handed in: the pull request, and whether it is new."""

    url: str
    number: int
    new: bool


@dataclass(frozen=True)
class Synced:
    """Names of parts that came and went."""

    pulled: tuple[str, ...]
    pushed: tuple[str, ...]


@dataclass(frozen=True)
class Exchange:
    """One home and one repository. `pause` sleeps between tries."""

    home: Home
    api: HfApi
    repo: str
    say: Say
    pause: Callable[[float], None] = time.sleep

    def propose(self, bundle: Path, id: str) -> Proposed:
        """Hands a sealed bundle in as a pull request; the one that is there, if there is one."""
        from huggingface_hub import CommitOperationAdd

        def attempt() -> Proposed:
            for pull in self._pulls():
                if pull.title == _title(id) and (
                    pull.status == "open" or id in self._bundles("main")
                ):
                    return Proposed(str(pull.url), int(pull.num), new=False)
            names = [n for n in (MANIFEST, *FILES) if (bundle / n).exists()]
            files = [CommitOperationAdd(f"bundles/{id}/{n}", bundle / n) for n in names]
            done = self.api.create_commit(
                self.repo,
                files,
                commit_message=_title(id),
                repo_type="dataset",
                create_pr=True,
            )
            return Proposed(str(done.pr_url), int(str(done.pr_num)), new=True)

        return self._try("propose", attempt)

    def fetch(self) -> list[str]:
        """Brings unknown bundles of open pull requests into the inbox; their ids."""
        accepted = self._try("list", lambda: self._bundles("main"))
        offers: dict[str, list[_Offer]] = {}
        for pull in self._try("list pull requests", self._pulls):
            if pull.status != "open" or not pull.git_reference:
                continue
            revision = str(pull.git_reference)
            listed = self._try("list", partial(self._bundles, revision))
            for id, files in listed.items():
                # What has no id is no bundle of ours; the repository's owner will see to it.
                if _ID.fullmatch(id) and id not in accepted and not self._known(id):
                    offers.setdefault(id, []).append((revision, files))
        return [id for id, offered in offers.items() if self._fetch(id, offered)]

    def publish(self) -> Synced:
        """Answers pull requests, then makes the lake's new parts public."""
        synced = self.sync()
        regrades = self._regrades()
        for pull in self._try("list pull requests", self._pulls):
            if pull.title.startswith(_title("")):
                id = pull.title.removeprefix(_title(""))
                # The oldest is told of re-grades; one that only bears the same title is not.
                self._answer(id, pull, regrades.pop(id, []))
        return synced

    def sync(self) -> Synced:
        """Pulls parts of the lake that are not here, pushes those that are not there."""
        pulled = self._pull()
        pushed = self._try("push", self._push)
        return Synced(tuple(pulled), tuple(pushed))

    # -- pull requests --------------------------------------------------------------------------

    def _pulls(self) -> list[Any]:
        """All pull requests, the oldest first."""
        found = self.api.get_repo_discussions(
            self.repo, repo_type="dataset", discussion_type="pull_request"
        )
        return sorted(found, key=lambda pull: pull.num)

    def _bundles(self, revision: str) -> dict[str, dict[str, int]]:
        """Bundles at a revision: file names with sizes, by id."""
        found: dict[str, dict[str, int]] = {}
        for path, size in self._tree("bundles", revision):
            pieces = path.split("/")
            if len(pieces) == 3:
                found.setdefault(pieces[1], {})[pieces[2]] = size
        return found

    def _tree(self, folder: str, revision: str) -> Iterator[tuple[str, int]]:
        from huggingface_hub.errors import EntryNotFoundError
        from huggingface_hub.hf_api import RepoFile

        try:
            for item in self.api.list_repo_tree(
                self.repo, folder, recursive=True, revision=revision, repo_type="dataset"
            ):
                if isinstance(item, RepoFile):
                    yield item.path, item.size
        except EntryNotFoundError:
            return

    def _known(self, id: str) -> bool:
        places = (self.home.inbox, self.home.bundles, self.home.rejected)
        return any((place / id).exists() for place in places)

    def _fetch(self, id: str, offered: Sequence[_Offer]) -> bool:
        """Brings one bundle. Of several under one id, only one can be what it says: that one, so
        that nobody has another's refused by offering a spoilt copy. What could never be a bundle is
        refused without being fetched."""
        fit = [(revision, files) for revision, files in offered if not _unfit_files(files)]
        if not fit:
            problems = [asdict(problem) for problem in _unfit_files(offered[0][1])]
            write_json(self.home.rejected / f"{id}.problems.json", problems)
            return False
        for number, (revision, files) in enumerate(fit, 1):
            staging = new_staging(self.home)
            try:
                staging.mkdir()
                self._download([f"bundles/{id}/{name}" for name in files], revision, staging)
                if number == len(fit) or not read_bundle(staging).problems:
                    return place(self.home, staging, id)
            finally:
                shutil.rmtree(staging, ignore_errors=True)
        raise AssertionError("unreachable")

    def _answer(self, id: str, pull: Any, regrades: Iterable[Any]) -> None:
        """Comments, accepts or refuses, each once: what was said is looked up in the thread."""
        told = self._told()
        open_, number = pull.status == "open", int(pull.num)
        problems = self.home.rejected / f"{id}.problems.json"
        if open_ and (self.home.bundles / id).exists():
            self._try("accept", partial(self._accept, id))
            self._comment(number, f"{id} accepted", _accepted(id))
            self._try("close", partial(self._close, number))
        elif open_ and problems.exists():
            self._comment(number, f"{id} refused", _refusal(read_json(problems)))
            self._try("close", partial(self._close, number))
        for row in regrades:
            regrade = row["regrade"]
            if regrade not in told:
                self._comment(number, f"{id} {regrade}", _verdict_text(row))
                write_json(self.home.root / "hub.json", sorted({*self._told(), regrade}))

    def _told(self) -> set[str]:
        path = self.home.root / "hub.json"
        return set(read_json(path)) if path.exists() else set()

    def _regrades(self) -> dict[str, list[Any]]:
        """Rows of the table `regrades`, by submission."""
        found: dict[str, list[Any]] = {}
        for part in parts(self.home):
            if part.kind == "regrade":
                table = pq.read_table(self.home.lake / part.name / "regrades.parquet")
                for row in table.to_pylist():
                    found.setdefault(row["submission"], []).append(row)
        return found

    def _comment(self, number: int, marker: str, text: str) -> None:
        """Says something once: the marker, invisible on the page, is looked for first."""
        mark = f"<!-- kernelmark {marker} -->"

        def attempt() -> None:
            details = self.api.get_discussion_details(self.repo, number, repo_type="dataset")
            if any(mark in str(getattr(event, "content", "")) for event in details.events):
                return
            self.api.comment_discussion(self.repo, number, f"{text}\n\n{mark}", repo_type="dataset")

        self._try("comment", attempt)

    def _accept(self, id: str) -> None:
        """Commits the bundle to main, as we validated it."""
        from huggingface_hub import CommitOperationAdd

        head = str(self.api.dataset_info(self.repo).sha)
        if id in self._bundles(head):
            return
        ours = self.home.bundles / id
        names = [name for name in (MANIFEST, *FILES) if (ours / name).exists()]
        self.api.create_commit(
            self.repo,
            [CommitOperationAdd(f"bundles/{id}/{name}", ours / name) for name in names],
            commit_message=_title(id),
            repo_type="dataset",
            parent_commit=head,
        )

    def _close(self, number: int) -> None:
        details = self.api.get_discussion_details(self.repo, number, repo_type="dataset")
        if details.status == "open":
            self.api.change_discussion_status(self.repo, number, "closed", repo_type="dataset")

    # -- the lake -------------------------------------------------------------------------------

    def _there(self, revision: str) -> dict[str, set[str]]:
        """Parts at a revision: the names of their files."""
        found: dict[str, set[str]] = {}
        for path, _ in self._tree("lake", revision):
            pieces = path.split("/")
            if len(pieces) == 3 and _PART_NAME.fullmatch(pieces[1]):
                found.setdefault(pieces[1], set()).add(pieces[2])
        return found

    def _pull(self) -> list[str]:
        there = self._try("list", lambda: self._there("main"))
        here = {part.name for part in parts(self.home)}
        missing = sorted(set(there) - here)
        for name in missing:
            self._pull_part(name, there[name])
        return missing

    def _pull_part(self, name: str, files: set[str]) -> None:
        self.home.lake.mkdir(parents=True, exist_ok=True)
        staging = self.home.root / f".pull.{uuid.uuid4().hex}"
        staging.mkdir(parents=True)
        try:
            self._download([f"lake/{name}/{file}" for file in sorted(files)], "main", staging)
            _check_part(staging, name)
            with exclusive(self.home, WAIT_S):
                sweep(self.home)
                if not (self.home.lake / name).exists():
                    commit_part(self.home, staging, name)
        finally:
            shutil.rmtree(staging, ignore_errors=True)

    def _push(self) -> list[str]:
        """Pushes what is missing there, in commits on top of the head that was looked at."""
        from huggingface_hub import CommitOperationAdd

        info = self.api.dataset_info(self.repo)
        head = str(info.sha)
        there = self._there(head)
        card = "README.md" not in {file.rfilename for file in info.siblings or ()}
        missing = [part for part in parts(self.home) if part.name not in there]
        for batch in _in_commits(missing):
            paths = [(part.name, n) for part in batch for n in (PART, *sorted(part.files))]
            files = [
                CommitOperationAdd(f"lake/{part}/{name}", self.home.lake / part / name)
                for part, name in paths
            ]
            if card:
                files.append(CommitOperationAdd("README.md", _card(self.repo).encode()))
                card = False
            done = self.api.create_commit(
                self.repo,
                files,
                commit_message=f"{len(batch)} parts of the lake",
                repo_type="dataset",
                parent_commit=head,
            )
            head = str(done.oid)
        return [part.name for part in missing]

    def _download(self, names: Iterable[str], revision: str, target: Path) -> None:
        with self._cache() as cache:
            for name in names:
                path = self._try("download", partial(self._file, name, revision, cache))
                shutil.copyfile(path, target / name.split("/")[-1])

    def _file(self, name: str, revision: str, cache: Path) -> str:
        return str(
            self.api.hf_hub_download(
                self.repo, name, repo_type="dataset", revision=revision, cache_dir=cache
            )
        )

    @contextmanager
    def _cache(self) -> Iterator[Path]:
        cache = self.home.root / f".hub.{uuid.uuid4().hex}"
        try:
            yield cache
        finally:
            shutil.rmtree(cache, ignore_errors=True)

    def _try(self, what: str, action: Callable[[], T]) -> T:
        return try_again(self.repo, what, action, self.say, self.pause)


def _card(repo: str) -> str:
    """The page of a new repository, with a configuration a table: each loads in one line."""
    lines = ["---", f"pretty_name: {repo.split('/')[-1]}", "license: apache-2.0", "configs:"]
    for table in SCHEMAS:
        lines += [f"- config_name: {table}", "  data_files:", "  - split: test"]
        lines += [f"    path: lake/*/{table}.parquet"]
        lines += ["  default: true"] if table == "submissions" else []
    text = f"""---

# Results of Kernelmark

Submissions under `bundles/`, as they were handed in; what they and our own grading say, as tables
under `lake/`. Nothing is ever changed or deleted: corrections are new rows (table `trust`), and
what was graded again stands beside what was claimed (`regrade_verdicts` beside `verdicts`).

    datasets.load_dataset("{repo}", "verdicts", split="test")

To take part: `kernelmark submit DIR --hub {repo}`. For the board: `kernelmark sync --hub {repo}`.
"""
    return "\n".join([*lines, text])


def _title(id: str) -> str:
    return f"Submission {id}"


def _accepted(id: str) -> str:
    """What is said of a bundle that is right."""
    what = "Accepted: the bundle is what it says."
    return f"{what} It stands under `bundles/{id}` on main, and nothing else of this proposal does."


def _unfit_files(files: Mapping[str, int]) -> list[Problem]:
    """Why a bundle of a pull request is not fetched; empty if it is. `files`: sizes by name."""
    found = ((name, _unfit(name, size)) for name, size in files.items())
    return [Problem(shown(name), why) for name, why in found if why]


def _unfit(name: str, size: int) -> str:
    """Why a file of a pull request is not fetched; empty if it is."""
    if name not in (MANIFEST, *FILES):
        return "is no file of a bundle"
    limit = MAX_MANIFEST_BYTES if name == MANIFEST else MAX_FILE_BYTES
    return f"has {size} bytes; at most {limit}" if size > limit else ""


def _in_commits(missing: Sequence[Any]) -> Iterator[list[Any]]:
    batch: list[Any] = []
    count = 0
    for part in missing:
        if batch and count + len(part.files) + 1 > _FILES_A_COMMIT:
            yield batch
            batch, count = [], 0
        batch.append(part)
        count += len(part.files) + 1
    if batch:
        yield batch


def _check_part(folder: Path, name: str) -> None:
    """A part that came over the network is what its manifest says, and of our schemas."""
    part = read_part(folder)
    present = {path.name for path in folder.iterdir()} - {PART}
    if part.name != name or present != set(part.files):
        raise InfrastructureError(f"lake/{name}: not the part that it says")
    for file, digest in part.files.items():
        table = file.removesuffix(".parquet")
        if table not in SCHEMAS:
            raise InfrastructureError(f"lake/{name}/{file}: no table of this version")
        if file_sha256(folder / file) != digest:
            raise InfrastructureError(f"lake/{name}/{file}: its sha256 is not the manifest's")
        for field in pq.read_schema(folder / file):
            if SCHEMAS[table].field(field.name).type != field.type:
                raise InfrastructureError(f"lake/{name}/{file}: column {field.name} is another")


def _refusal(problems: Sequence[Any]) -> str:
    lines = [f"- `{p['where']}`: {p['what']}".replace("\n", " ") for p in problems]
    more = [f"- and {len(lines) - _SHOWN_PROBLEMS} more"] if len(lines) > _SHOWN_PROBLEMS else []
    return "\n".join(["Refused:", "", *lines[:_SHOWN_PROBLEMS], *more])


def _verdict_text(row: Any) -> str:
    sku = f" ({row['sku']})" if row["sku"] else ""
    lines = [f"Graded again on {row['chip']}{sku}: **{row['outcome']}**. {row['reason']}."]
    counts = f"{row['agreeing']} of {row['candidates']} candidates agree"
    lines.append(f"{counts}, {row['contradicting']} contradict.")
    if row["speed_ratio"] is not None:
        low, high = row["speed_ratio_low"], row["speed_ratio_high"]
        lines.append(
            f"Speed found over claimed: {row['speed_ratio']:.3f} ({low:.3f} to {high:.3f})."
        )
    return "\n".join(lines)
