"""`kernelmark dataset push`: one commit on the Hub, on top of a parent that is named.

What a commit does depends on what stood there before: files of an earlier release that are no more
are deleted with it. So its parent is pinned, and where somebody else was faster everything is
looked at anew. An answer that was lost is not taken for a failure: the next try sees that the
files stand there already.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelmark.benchmark.dataset.build import MANIFEST
from kernelmark.benchmark.dataset.load import read_manifest
from kernelmark.benchmark.errors import UserError
from kernelmark.benchmark.hub import Say, try_again

if TYPE_CHECKING:
    from huggingface_hub import HfApi


@dataclass(frozen=True)
class Pushed:
    """What stands on the Hub now. `pull_request`: its address, where one was asked for."""

    repo: str
    commit: str
    content_hash: str
    version: str
    changed: bool  #: False where all of it stood there already
    pull_request: str = ""


@dataclass(frozen=True)
class Push:
    """One upload of a checked folder. `pause` sleeps between tries."""

    api: HfApi
    repo: str
    folder: Path
    say: Say
    pull_request: bool = False
    private: bool = False
    pause: Callable[[float], None] = time.sleep

    def run(self) -> Pushed:
        """Uploads. `UserError` for what will not pass by itself, `InfrastructureError` for the
        rest, after `TRIES` tries."""
        manifest = read_manifest(self.folder)
        if not self.pull_request:  # others may propose only to what is there
            self._try("create", self._create)
        pushed = self._try("commit", lambda: self._commit(manifest))
        if not self.pull_request:
            self._try("tag", lambda: self._tag(pushed))
        return pushed

    def _create(self) -> None:
        from huggingface_hub.errors import HfHubHTTPError

        try:
            self.api.create_repo(self.repo, repo_type="dataset", private=self.private)
            self.say(f"created {self.repo}")
        except HfHubHTTPError as error:
            if error.response.status_code != 409 or not self._exists():
                raise

    def _exists(self) -> bool:
        found: bool = self.api.repo_exists(self.repo, repo_type="dataset")
        return found

    def _commit(self, manifest: dict[str, Any]) -> Pushed:
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete

        version, hash = manifest["version"], manifest["content_hash"]
        info = self.api.dataset_info(self.repo)
        head, there = str(info.sha), {s.rfilename for s in info.siblings or ()}
        self._version_is_free(version, hash)
        listed = {MANIFEST, *manifest["files"]}
        obsolete = self._obsolete(head, there) - listed
        if self.pull_request and (proposed := self._proposed(hash)):
            return proposed
        additions = [CommitOperationAdd(path, self.folder / path) for path in sorted(listed)]
        deletions = [CommitOperationDelete(path) for path in sorted(obsolete)]
        size = sum((self.folder / path).stat().st_size for path in listed)
        self.say(f"{len(additions)} files, {size / 1e6:.1f} MB, on top of {head[:12]}")
        done = self.api.create_commit(
            self.repo,
            [*additions, *deletions],
            commit_message=_title(version, hash),
            commit_description=f"Content hash {hash}",
            repo_type="dataset",
            parent_commit=head,
            create_pr=self.pull_request,
        )
        changed = done.oid != head  # the client commits nothing where nothing differs
        return Pushed(self.repo, done.oid, hash, version, changed, done.pr_url or "")

    def _version_is_free(self, version: str, hash: str) -> None:
        """A version that is tagged names its contents for good."""
        refs = self.api.list_repo_refs(self.repo, repo_type="dataset")
        tagged = {tag.name: tag.target_commit for tag in refs.tags}.get(f"v{version}")
        if tagged is not None and self._hash_at(tagged) != hash:
            raise UserError(
                f"{self.repo} has version {version} with other contents; "
                "add a release to benchmark/dataset/identity.py"
            )

    def _manifest_at(self, revision: str) -> dict[str, Any]:
        from huggingface_hub.errors import EntryNotFoundError

        try:
            path = self.api.hf_hub_download(
                self.repo, MANIFEST, repo_type="dataset", revision=revision
            )
        except EntryNotFoundError:
            return {}
        return read_manifest(Path(path).parent)

    def _hash_at(self, revision: str) -> str:
        return str(self._manifest_at(revision).get("content_hash", ""))

    def _obsolete(self, head: str, there: set[str]) -> set[str]:
        """Files of the release that stands there."""
        if MANIFEST not in there:
            return set()
        return set(self._manifest_at(head).get("files", {})) & there

    def _proposed(self, hash: str) -> Pushed | None:
        """The open pull request of ours that proposes the same, if there is one."""
        manifest = read_manifest(self.folder)
        title = _title(manifest["version"], hash)
        for pull in self.api.get_repo_discussions(
            self.repo,
            repo_type="dataset",
            discussion_type="pull_request",
            discussion_status="open",
            author=self.api.whoami()["name"],
        ):
            reference = pull.git_reference or ""
            if pull.title == title and self._hash_at(reference) == hash:
                self.say(f"pull request {pull.num} proposes all of it already")
                commit = str(self.api.dataset_info(self.repo, revision=reference).sha)
                version = manifest["version"]
                return Pushed(self.repo, commit, hash, version, False, pull.url)
        return None

    def _tag(self, pushed: Pushed) -> None:
        self.api.create_tag(
            self.repo,
            tag=f"v{pushed.version}",
            revision=pushed.commit,
            repo_type="dataset",
            exist_ok=True,
        )

    def _try(self, what: str, action: Callable[[], Any]) -> Any:
        return try_again(self.repo, what, action, self.say, self.pause)


def _title(version: str, hash: str) -> str:
    return f"Version {version}, content {hash[:12]}"
