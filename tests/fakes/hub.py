"""A small Hub on loopback: what the real `huggingface_hub` and `datasets` clients talk to in tests.

    from fakes.hub import Hub

    with Hub() as hub:
        token = hub.add_user("alice", "lab")          # writes to alice/* and lab/*
        api = HfApi(endpoint=hub.url, token=token)     # the real client, nothing patched
        api.create_repo("lab/results", repo_type="dataset")
        api.upload_folder(repo_id="lab/results", repo_type="dataset", folder_path=folder)

`HF_ENDPOINT` is read when the clients are imported, so `datasets` and command lines run in a
process of their own: `subprocess.run(..., env={**os.environ, **hub.environment(token, home)})`.
In the test's own process give `endpoint=hub.url`, and set `HF_HUB_DISABLE_XET=1` before the client
is imported (`tests/conftest.py` does): the Hub's newer storage, Xet, is not implemented here,
large files go through LFS.

Who may do what is as on the Hub: anybody reads public repositories; only a namespace's users commit
to its branches, merge and tag; every user opens pull requests anywhere (`create_pr=True`), and
commits to the ones they opened (`revision="refs/pr/N"`).

What goes wrong, goes wrong on demand, for requests whose method and path match:

    hub.fail("/commit/", 429, times=2, headers={"Retry-After": "1"})   # also 409, 412, 5xx
    hub.cut("/commit/", "before")    # the connection breaks; "after": what was asked was done;
    hub.cut("/resolve/", "half")     # "half": in the middle of the answer's body
    hub.beforehand("/commit/", lambda: hub.commit("lab/results", {"a.txt": b"theirs"}))
    hub.commit_s = 0.5               # commits take so long; one that comes meanwhile gets 409

A commit whose `parent_commit` is no longer the head gets a true 412. `hub.requests` lists what was
asked (method, path, status), `hub.repo(id)` is the state itself (`fakes.hub_repos.Repo`),
`hub.files(id, revision)` a tree's bytes, `hub.merge(id, number)` merges as the owner.

Run by hand: `python tests/fakes/hub.py` prints the environment to set.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Literal
from urllib.parse import quote, unquote

import yaml
from aiohttp import web

if __name__ == "__main__":  # run by hand
    import sys

    sys.path.insert(0, str(Path(__file__).parent.parent))

from fakes.hub_repos import MAIN, Blob, Commit, Discussion, Refused, Repo, Tree, changed, now

KINDS = {"models": "model", "datasets": "dataset", "spaces": "space"}
#: as the Hub: by name (`.gitattributes`), by size, and whatever is not text
LFS_SUFFIXES = (".parquet", ".arrow", ".zip", ".gz", ".zst", ".bin", ".duckdb")
LFS_FROM_BYTES = 10 * 2**20

When = Literal["before", "after", "half"]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Asked:
    """One request that was answered; status 0 where the connection was cut."""

    method: str
    path: str
    status: int


@dataclass
class Fault:
    """What goes wrong with matching requests, `times` times after `skip` that go well."""

    path: re.Pattern[str]
    method: str
    times: int
    skip: int = 0
    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    message: str = ""
    cut: When | None = None
    action: Callable[[], object] | None = None

    def takes(self, request: web.Request) -> bool:
        """Whether this request is hit; counts down."""
        if self.method not in ("*", request.method) or not self.path.search(request.path):
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        self.times -= 1
        return self.times >= 0


class Hub:
    """The server: a context manager that answers on `url` while it is open."""

    def __init__(self, page_size: int = 1000) -> None:
        self.page_size = page_size  #: entries a page of listings
        self.commit_s = 0.0
        self.url = self.storage_url = ""
        self.requests: list[Asked] = []
        self._users: dict[str, str] = {}  # token -> name
        self._namespaces: dict[str, set[str]] = {}  # name -> where they may write
        self._repos: dict[tuple[str, str], Repo] = {}
        self._stored: dict[str, bytes] = {}  # large files by sha256
        self._faults: list[Fault] = []
        self._lock = threading.RLock()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    # -- for tests ------------------------------------------------------------------------------

    def __enter__(self) -> Hub:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(30)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()

    def add_user(self, name: str, *namespaces: str) -> str:
        """A user who may write to their own and these namespaces; their token."""
        token = f"hf_loopback_{name}"
        self._users[token] = name
        self._namespaces[name] = {name, *namespaces}
        return token

    def environment(self, token: str, home: Path) -> dict[str, str]:
        """Variables for a process whose clients are to talk to this Hub; caches under `home`."""
        return {
            "HF_ENDPOINT": self.url,
            "HF_TOKEN": token,
            "HF_HOME": str(home),
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_OFFLINE": "0",
            "HF_DATASETS_OFFLINE": "0",
            "NO_PROXY": "127.0.0.1,localhost",
            "no_proxy": "127.0.0.1,localhost",
        }

    def fail(
        self,
        path: str,
        status: int,
        *,
        times: int = 1,
        skip: int = 0,
        method: str = "*",
        headers: Mapping[str, str] | None = None,
        message: str = "",
    ) -> None:
        """The next requests whose path matches (a regular expression, searched) get `status`."""
        fault = Fault(re.compile(path), method, times, skip, status, headers or {}, message)
        self._faults.append(fault)

    def cut(
        self, path: str, when: When, *, times: int = 1, skip: int = 0, method: str = "*"
    ) -> None:
        """The connection breaks: before or after the request is carried out, or half answered."""
        self._faults.append(Fault(re.compile(path), method, times, skip, cut=when))

    def beforehand(
        self, path: str, action: Callable[[], object], *, times: int = 1, method: str = "*"
    ) -> None:
        """Calls `action` before matching requests are carried out: somebody else was faster."""
        self._faults.append(Fault(re.compile(path), method, times, action=action))

    def repo(self, id: str, kind: str = "dataset") -> Repo:
        """The repository `id` itself."""
        return self._repos[kind, id]

    def files(self, id: str, revision: str = MAIN, kind: str = "dataset") -> dict[str, bytes]:
        """Bytes by path at a revision."""
        return {p: blob.data for p, blob in self.repo(id, kind).resolve(revision).tree.items()}

    def commit(
        self, id: str, files: Mapping[str, bytes | None], kind: str = "dataset", title: str = "edit"
    ) -> str:
        """A commit on main by the repository's owner (None removes a file); its hash."""
        with self._lock:
            repo = self.repo(id, kind)
            tree = dict(repo.head.tree)
            for path, data in files.items():
                if data is None:
                    del tree[path]
                else:
                    tree[path] = Blob(data, _is_large(path, len(data), data[:512]))
            parents = (repo.head.oid,)
            return repo.add_commit(MAIN, tree, parents, title, "", repo.namespace).oid

    def merge(self, id: str, number: int, kind: str = "dataset") -> str:
        """Merges a pull request as the owner; the merge commit's hash."""
        with self._lock:
            repo = self.repo(id, kind)
            return repo.merge(repo.discussion(number), repo.namespace).oid

    # -- the server -----------------------------------------------------------------------------

    async def _start(self) -> None:
        app = web.Application(middlewares=[self._middleware], client_max_size=2**31)
        api = "/api/{kind:models|datasets|spaces}/{owner}/{name}"
        web_page = "/{kind:datasets|spaces}/{owner}/{name}"
        app.add_routes(
            [
                web.get("/api/whoami-v2", self._whoami),
                web.post("/api/validate-yaml", self._validate_yaml),
                web.post("/api/repos/create", self._create_repo),
                web.delete("/api/repos/delete", self._delete_repo),
                web.get("/api/{kind:models|datasets|spaces}", self._list_repos),
                web.get(api, self._info),
                web.get(api + "/revision/{revision}", self._info),
                web.get(api + "/tree/{revision}", self._tree),
                web.get(api + "/tree/{revision}/{path:.+}", self._tree),
                web.post(api + "/paths-info/{revision}", self._paths_info),
                web.get(api + "/refs", self._refs),
                web.get(api + "/commits/{revision}", self._commits),
                web.post(api + "/preupload/{revision}", self._preupload),
                web.post(api + "/commit/{revision}", self._commit),
                web.post(api + "/branch/{branch}", self._create_branch),
                web.delete(api + "/branch/{branch}", self._delete_branch),
                web.post(api + "/tag/{revision}", self._create_tag),
                web.delete(api + "/tag/{revision}", self._delete_tag),
                web.get(api + "/discussions", self._list_discussions),
                web.post(api + "/discussions", self._create_discussion),
                web.get(api + "/discussions/{number:\\d+}", self._show_discussion),
                web.post(api + "/discussions/{number:\\d+}/comment", self._comment),
                web.post(api + "/discussions/{number:\\d+}/status", self._set_status),
                web.post(api + "/discussions/{number:\\d+}/title", self._set_title),
                web.post(api + "/discussions/{number:\\d+}/merge", self._merge),
                web.post(web_page + ".git/info/lfs/objects/batch", self._lfs_batch),
                web.post("/{owner}/{name}.git/info/lfs/objects/batch", self._lfs_batch),
                web.put("/storage/{sha256}", self._store),
                web.post("/storage/{sha256}/verify", self._verify),
                web.get("/storage/{sha256}", self._stored_file),
                web.get(web_page + "/resolve/{revision}/{path:.+}", self._resolve),
                web.get("/{owner}/{name}/resolve/{revision}/{path:.+}", self._resolve),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        port = self._runner.addresses[0][1]
        # As on the Hub, large files lie on another host: clients follow redirects there otherwise.
        self.url, self.storage_url = f"http://127.0.0.1:{port}", f"http://localhost:{port}"

    @web.middleware
    async def _middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Faults, refusals, the list of requests."""
        asked = Asked(request.method, request.path, 0)
        self.requests.append(asked)
        fault = next((fault for fault in list(self._faults) if fault.takes(request)), None)
        if fault is not None and fault.action is not None:
            await self._loop.run_in_executor(None, fault.action)
            fault = None
        if fault is not None and fault.status:
            refusal = Refused(fault.status, fault.message or f"asked to answer {fault.status}")
            asked.status = fault.status
            return _refusal(refusal, fault.headers)
        if fault is not None and fault.cut == "before":
            return _cut(request)
        try:
            response = await handler(request)
        except Refused as refused:
            response = _refusal(refused, {})
        except web.HTTPException as error:  # no such route
            response = _refusal(Refused(error.status, f"{request.path}: {error.reason}"), {})
        if fault is not None and fault.cut == "after":
            return _cut(request)
        if fault is not None and fault.cut == "half":
            return await _half(request, response)
        asked.status = response.status
        return response

    # -- people ---------------------------------------------------------------------------------

    def _user(self, request: web.Request) -> str | None:
        """Who asks; None where nobody says. A wrong token is refused."""
        header = request.headers.get("Authorization", "")
        if not header:
            return None
        user = self._users.get(header.removeprefix("Bearer "))
        if user is None:
            raise Refused(401, "Invalid credentials in Authorization header")
        return user

    def _somebody(self, request: web.Request) -> str:
        user = self._user(request)
        if user is None:
            raise Refused(401, "Invalid username or password.")
        return user

    def _may_write(self, user: str | None, namespace: str) -> bool:
        return user is not None and namespace in self._namespaces[user]

    def _writer(self, request: web.Request, namespace: str) -> str:
        user = self._somebody(request)
        if not self._may_write(user, namespace):
            raise Refused(403, f"Forbidden: {user} has no write access to {namespace}")
        return user

    def _repo_of(self, request: web.Request) -> Repo:
        """The repository in the request's path, if the asker may see it."""
        match = request.match_info
        kind = KINDS[match.get("kind", "models")]
        repo = self._repos.get((kind, f"{match['owner']}/{match['name']}"))
        user = self._user(request)
        if repo is None or (repo.private and not self._may_write(user, repo.namespace)):
            raise Refused(404 if user else 401, "Repository not found", "RepoNotFound")
        return repo

    async def _whoami(self, request: web.Request) -> web.Response:
        user = self._somebody(request)
        organisations = sorted(self._namespaces[user] - {user})
        return web.json_response(
            {
                "type": "user",
                "id": user,
                "name": user,
                "fullname": user,
                "orgs": [{"name": name} for name in organisations],
                "auth": {"type": "access_token", "accessToken": {"role": "write"}},
            }
        )

    # -- repositories ---------------------------------------------------------------------------

    async def _create_repo(self, request: web.Request) -> web.Response:
        body = await request.json()
        user = self._somebody(request)
        namespace = body.get("organization") or user
        self._writer(request, namespace)
        kind, id = body.get("type") or "model", f"{namespace}/{body['name']}"
        url = self._page(kind, id)
        if (kind, id) in self._repos:
            message = {"error": f"You already created this {kind} repo", "url": url}
            return web.json_response(message, status=409)
        private = body.get("visibility") == "private" or bool(body.get("private"))
        self._repos[kind, id] = Repo(kind, id, user, private)
        return web.json_response({"url": url, "name": id, "id": id})

    async def _delete_repo(self, request: web.Request) -> web.Response:
        body = await request.json()
        namespace = body.get("organization") or self._somebody(request)
        self._writer(request, namespace)
        key = body.get("type") or "model", f"{namespace}/{body['name']}"
        if self._repos.pop(key, None) is None:
            raise Refused(404, "Repository not found", "RepoNotFound")
        return web.json_response({})

    async def _list_repos(self, request: web.Request) -> web.Response:
        kind, author = KINDS[request.match_info["kind"]], request.query.get("author")
        words = request.query.get("search", "")
        repos = [
            repo
            for (known, id), repo in sorted(self._repos.items())
            if known == kind and words in id and not repo.private
            if author in (None, repo.namespace)
        ]
        return web.json_response([self._describe(repo, repo.head, False) for repo in repos])

    async def _info(self, request: web.Request) -> web.Response:
        repo = self._repo_of(request)
        commit = repo.resolve(request.match_info.get("revision", MAIN))
        return web.json_response(self._describe(repo, commit, "blobs" in request.query))

    def _describe(self, repo: Repo, commit: Commit, blobs: bool) -> dict[str, Any]:
        siblings: list[dict[str, Any]] = []
        for path, blob in sorted(commit.tree.items()):
            sibling: dict[str, Any] = {"rfilename": path}
            if blobs:
                sibling |= {"size": len(blob.data), "blobId": blob.git_oid}
                if blob.lfs:
                    sibling["lfs"] = {
                        "sha256": blob.sha256,
                        "size": len(blob.data),
                        "pointerSize": len(blob.pointer),
                    }
            siblings.append(sibling)
        card = commit.tree.get("README.md")
        return {
            "_id": repo.id,
            "id": repo.id,
            "author": repo.namespace,
            "sha": commit.oid,
            "createdAt": _time(repo.created_at),
            "lastModified": _time(commit.date),
            "private": repo.private,
            "gated": False,
            "disabled": False,
            "downloads": 0,
            "likes": 0,
            "tags": [],
            "cardData": _front_matter(card.data.decode()) if card else {},
            "siblings": siblings,
        }

    async def _tree(self, request: web.Request) -> web.Response:
        repo = self._repo_of(request)
        commit = repo.resolve(request.match_info["revision"])
        folder = unquote(request.match_info.get("path", "")).strip("/")
        recursive = request.query.get("recursive", "").lower() in ("true", "1")
        entries = _entries(commit.tree, folder, recursive)
        if not entries and folder:
            raise Refused(404, f"{folder} does not exist on {commit.oid}", "EntryNotFound")
        start = int(request.query.get("cursor", 0))
        page, rest = entries[start : start + self.page_size], entries[start + self.page_size :]
        headers = {}
        if rest:
            following = request.url.update_query(cursor=str(start + self.page_size))
            headers["Link"] = f'<{following}>; rel="next"'
        return web.json_response(page, headers=headers)

    async def _paths_info(self, request: web.Request) -> web.Response:
        repo = self._repo_of(request)
        commit = repo.resolve(request.match_info["revision"])
        form = await request.post()
        wanted = {str(path).strip("/") for path in form.getall("paths", [])}
        entries = _entries(commit.tree, "", True)
        return web.json_response([entry for entry in entries if entry["path"] in wanted])

    async def _refs(self, request: web.Request) -> web.Response:
        repo = self._repo_of(request)

        def row(name: str, ref: str, oid: str) -> dict[str, str]:
            return {"name": name, "ref": ref, "targetCommit": oid}

        branches = {n: oid for n, oid in repo.refs.items() if not n.startswith("refs/pr/")}
        body = {
            "branches": [row(name, f"refs/heads/{name}", oid) for name, oid in branches.items()],
            "converts": [],
            "tags": [row(name, f"refs/tags/{name}", oid) for name, oid in repo.tags.items()],
        }
        if "include_prs" in request.query:
            pulls = [pull for pull in repo.discussions if pull.is_pull_request]
            body["pullRequests"] = [row(str(p.num), p.ref, repo.refs[p.ref]) for p in pulls]
        return web.json_response(body)

    async def _commits(self, request: web.Request) -> web.Response:
        repo = self._repo_of(request)
        commits = repo.history(repo.resolve(request.match_info["revision"]))
        return web.json_response(
            [
                {
                    "id": commit.oid,
                    "title": commit.title,
                    "message": commit.message,
                    "authors": [{"user": commit.author}],
                    "date": _time(commit.date),
                }
                for commit in commits
            ]
        )

    async def _create_branch(self, request: web.Request) -> web.Response:
        repo, branch = self._repo_of(request), request.match_info["branch"]
        self._writer(request, repo.namespace)
        if branch in repo.refs:
            raise Refused(409, f"Reference already exists: {branch}")
        body = await request.json() if request.can_read_body else {}
        repo.refs[branch] = repo.resolve(body.get("startingPoint", MAIN)).oid
        return web.json_response({})

    async def _delete_branch(self, request: web.Request) -> web.Response:
        repo, branch = self._repo_of(request), request.match_info["branch"]
        self._writer(request, repo.namespace)
        if branch == MAIN or branch not in repo.refs:
            raise Refused(404, f"Invalid rev id: {branch}", "RevisionNotFound")
        del repo.refs[branch]
        return web.json_response({})

    async def _create_tag(self, request: web.Request) -> web.Response:
        repo, body = self._repo_of(request), await request.json()
        self._writer(request, repo.namespace)
        if body["tag"] in repo.tags:
            raise Refused(409, f"Tag reference exists already: {body['tag']}")
        repo.tags[body["tag"]] = repo.resolve(request.match_info["revision"]).oid
        return web.json_response({})

    async def _delete_tag(self, request: web.Request) -> web.Response:
        repo, tag = self._repo_of(request), request.match_info["revision"]
        self._writer(request, repo.namespace)
        if repo.tags.pop(tag, None) is None:
            raise Refused(404, f"Invalid rev id: {tag}", "RevisionNotFound")
        return web.json_response({})

    # -- writing --------------------------------------------------------------------------------

    async def _validate_yaml(self, request: web.Request) -> web.Response:
        body = await request.json()
        try:
            matter = _front_matter(body["content"], strict=True)
        except ValueError as error:
            return web.json_response({"errors": [{"message": str(error)}]}, status=400)
        warnings = [] if matter else [{"message": "empty or missing yaml metadata in repo card"}]
        return web.json_response({"errors": [], "warnings": warnings})

    async def _preupload(self, request: web.Request) -> web.Response:
        repo, body = self._repo_of(request), await request.json()
        self._somebody(request)
        tree = repo.resolve(request.match_info["revision"]).tree
        files = []
        for file in body["files"]:
            large = _is_large(file["path"], file["size"], base64.b64decode(file["sample"]))
            known = tree.get(file["path"])
            row = {"path": file["path"], "uploadMode": "lfs" if large else "regular"}
            row |= {"shouldIgnore": False, "oid": known.etag if known else None}
            files.append(row)
        return web.json_response({"files": files})

    async def _lfs_batch(self, request: web.Request) -> web.Response:
        self._repo_of(request)
        self._somebody(request)
        body = await request.json()
        objects = []
        for wanted in body["objects"]:
            answer = {"oid": wanted["oid"], "size": wanted["size"]}
            if wanted["oid"] not in self._stored:
                href = f"{self.storage_url}/storage/{wanted['oid']}"
                answer["actions"] = {"upload": {"href": href}, "verify": {"href": href + "/verify"}}
            objects.append(answer)
        return web.json_response({"transfer": "basic", "objects": objects})

    async def _store(self, request: web.Request) -> web.Response:
        data, sha256 = await request.read(), request.match_info["sha256"]
        if Blob(data).sha256 != sha256:
            raise Refused(400, "The content does not have the hash that it was announced with")
        self._stored[sha256] = data
        return web.Response()

    async def _verify(self, request: web.Request) -> web.Response:
        body, sha256 = await request.json(), request.match_info["sha256"]
        if len(self._stored.get(sha256, b"")) != body["size"]:
            raise Refused(404, "Not stored in this size")
        return web.json_response({})

    async def _commit(self, request: web.Request) -> web.Response:
        repo, revision = self._repo_of(request), request.match_info["revision"]
        user = self._somebody(request)
        create_pr = request.query.get("create_pr") in ("1", "true")
        lines = [json.loads(line) for line in (await request.read()).splitlines() if line.strip()]
        header = lines[0]["value"]
        if not create_pr:
            self._may_commit(user, repo, revision)
        if repo.busy:
            raise Refused(409, "Another commit is in progress on this repository, try again")
        repo.busy = True
        try:
            if self.commit_s:
                await asyncio.sleep(self.commit_s)
            with self._lock:
                commit, pull = self._write(repo, revision, create_pr, header, lines[1:], user)
        finally:
            repo.busy = False
        page = self._page(repo.kind, repo.id)
        body = {"success": True, "commitOid": commit.oid, "hookOutput": ""}
        body["commitUrl"] = f"{page}/commit/{commit.oid}"
        if pull is not None:
            body["pullRequestUrl"] = f"{page}/discussions/{pull.num}"
        return web.json_response(body)

    def _may_commit(self, user: str, repo: Repo, revision: str) -> None:
        pull = revision.startswith("refs/pr/")
        own = pull and repo.discussion(int(revision.removeprefix("refs/pr/"))).author == user
        if own or self._may_write(user, repo.namespace):
            return
        raise Refused(403, f"Forbidden: {user} has no write access to {repo.id}, pass create_pr=1")

    def _write(
        self,
        repo: Repo,
        revision: str,
        create_pr: bool,
        header: Mapping[str, str],
        operations: Iterable[Mapping[str, Any]],
        user: str,
    ) -> tuple[Commit, Discussion | None]:
        """Carries a commit out, on `revision` or on a new pull request."""
        if revision not in repo.refs:
            raise Refused(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        parent = repo.resolve(revision)
        wanted = header.get("parentCommit")
        if wanted and create_pr:
            parent = repo.resolve(wanted)
        elif wanted and not parent.oid.startswith(wanted):
            raise Refused(412, "A commit has happened since. Please refresh and try again.")
        tree = self._apply(parent.tree, operations)
        pull = None
        if create_pr:
            pull = repo.open_discussion(header["summary"], user, parent.oid, "open")
            if header.get("description"):
                pull.events.append(_comment(user, header["description"]))
            revision = pull.ref
        elif not changed(parent.tree, tree):
            return parent, None
        summary, text = header["summary"], header.get("description", "")
        commit = repo.add_commit(revision, tree, (parent.oid,), summary, text, user)
        if revision.startswith("refs/pr/"):
            opened = repo.discussion(int(revision.removeprefix("refs/pr/")))
            data = {"subject": summary, "oid": commit.oid}
            opened.events.append(_event("commit", user, data))
        return commit, pull

    def _apply(self, tree: Tree, operations: Iterable[Mapping[str, Any]]) -> dict[str, Blob]:
        result = dict(tree)
        for operation in operations:
            value = operation["value"]
            path = value["path"]
            match operation["key"]:
                case "file":
                    result[path] = Blob(base64.b64decode(value["content"]))
                case "lfsFile":
                    if value["oid"] not in self._stored:
                        raise Refused(400, f"{path}: its LFS object was never uploaded")
                    result[path] = Blob(self._stored[value["oid"]], lfs=True)
                case "deletedFile":
                    if result.pop(path, None) is None:
                        message = f"A file with this name doesn't exist: {path}"
                        raise Refused(404, message, "EntryNotFound")
                case "deletedFolder":
                    folder = path.rstrip("/") + "/"
                    result = {p: b for p, b in result.items() if not p.startswith(folder)}
                case key:
                    raise Refused(400, f"Unknown operation {key}")
        return result

    # -- discussions and pull requests ----------------------------------------------------------

    async def _list_discussions(self, request: web.Request) -> web.Response:
        repo, query = self._repo_of(request), request.query
        kinds = {"pull_request": True, "discussion": False}
        states = {"open": ("open", "draft"), "closed": ("closed", "merged")}
        found = [
            discussion
            for discussion in reversed(repo.discussions)
            if query.get("type", "all") == "all"
            or discussion.is_pull_request is kinds[query["type"]]
            if query.get("status", "all") == "all" or discussion.status in states[query["status"]]
            if query.get("author") in (None, discussion.author)
        ]
        start = int(query.get("p", 0)) * self.page_size
        page = [_discussion(repo, item) for item in found[start : start + self.page_size]]
        body = {"discussions": page, "count": len(found), "start": start, "numClosedDiscussions": 0}
        return web.json_response(body)

    async def _create_discussion(self, request: web.Request) -> web.Response:
        repo, body = self._repo_of(request), await request.json()
        user, pull = self._somebody(request), bool(body.get("pullRequest"))
        base, status = (repo.head.oid, "draft") if pull else (None, "open")
        discussion = repo.open_discussion(body["title"], user, base, status)
        discussion.events.append(_comment(user, body.get("description") or ""))
        return web.json_response({"num": discussion.num, "pullRequest": pull})

    async def _show_discussion(self, request: web.Request) -> web.Response:
        repo = self._repo_of(request)
        discussion = repo.discussion(int(request.match_info["number"]))
        body = _discussion(repo, discussion) | {"events": discussion.events}
        if discussion.is_pull_request:
            merged = {"mergeCommitId": discussion.merged_as} if discussion.merged_as else {}
            body["changes"] = {"base": f"refs/heads/{MAIN}", **merged}
            settled = discussion.status in ("merged", "closed")
            body["filesWithConflicts"] = [] if settled else repo.conflicts(discussion)
        return web.json_response(body)

    async def _comment(self, request: web.Request) -> web.Response:
        _, discussion, user, body = await self._about_discussion(request)
        event = _comment(user, body["comment"])
        discussion.events.append(event)
        return web.json_response({"newMessage": event})

    async def _set_title(self, request: web.Request) -> web.Response:
        repo, discussion, user, body = await self._about_discussion(request)
        self._owns(user, repo, discussion)
        event = _event("title-change", user, {"from": discussion.title, "to": body["title"]})
        discussion.title = body["title"]
        discussion.events.append(event)
        return web.json_response({"newTitle": event})

    async def _set_status(self, request: web.Request) -> web.Response:
        repo, discussion, user, body = await self._about_discussion(request)
        self._owns(user, repo, discussion)
        if discussion.status == "merged":
            raise Refused(409, "This pull request is merged")
        discussion.status = body["status"]
        if body.get("comment"):
            discussion.events.append(_comment(user, body["comment"]))
        event = _event("status-change", user, {"status": body["status"]})
        discussion.events.append(event)
        return web.json_response({"newStatus": event})

    async def _merge(self, request: web.Request) -> web.Response:
        repo, discussion, user, body = await self._about_discussion(request)
        self._writer(request, repo.namespace)
        if not discussion.is_pull_request:
            raise Refused(400, "Not a pull request")
        with self._lock:
            commit = repo.merge(discussion, user)
        if body.get("comment"):
            discussion.events.append(_comment(user, body["comment"]))
        discussion.events.append(_event("status-change", user, {"status": "merged"}))
        return web.json_response({"merged": True, "commitOid": commit.oid})

    async def _about_discussion(
        self, request: web.Request
    ) -> tuple[Repo, Discussion, str, dict[str, Any]]:
        repo = self._repo_of(request)
        discussion = repo.discussion(int(request.match_info["number"]))
        body = json.loads(await request.read() or b"{}") or {}
        return repo, discussion, self._somebody(request), body

    def _owns(self, user: str, repo: Repo, discussion: Discussion) -> None:
        if user != discussion.author and not self._may_write(user, repo.namespace):
            raise Refused(403, f"Forbidden: {user} did not open this")

    # -- reading --------------------------------------------------------------------------------

    async def _resolve(self, request: web.Request) -> web.Response:
        repo = self._repo_of(request)
        commit = repo.resolve(request.match_info["revision"])
        headers = {"X-Repo-Commit": commit.oid, "Accept-Ranges": "bytes"}
        path = request.match_info["path"]
        blob = commit.tree.get(path)
        if blob is None:
            refusal = Refused(404, f"Entry not found: {path}", "EntryNotFound")
            return _refusal(refusal, {"X-Repo-Commit": commit.oid})
        headers["ETag"] = f'"{blob.git_oid}"'
        if blob.lfs:
            self._stored[blob.sha256] = blob.data
            headers |= {
                "X-Linked-Etag": f'"{blob.sha256}"',
                "X-Linked-Size": str(len(blob.data)),
                "Location": f"{self.storage_url}/storage/{blob.sha256}",
            }
            return web.Response(status=302, headers=headers)
        return _content(request, blob.data, headers)

    async def _stored_file(self, request: web.Request) -> web.Response:
        sha256 = request.match_info["sha256"]
        if sha256 not in self._stored:
            raise Refused(404, "Not stored", "EntryNotFound")
        return _content(request, self._stored[sha256], {"ETag": f'"{sha256}"'})

    def _page(self, kind: str, id: str) -> str:
        return f"{self.url}/{id}" if kind == "model" else f"{self.url}/{kind}s/{id}"


def _is_large(path: str, size: int, sample: bytes) -> bool:
    return path.endswith(LFS_SUFFIXES) or size > LFS_FROM_BYTES or b"\0" in sample


def _entries(tree: Tree, folder: str, recursive: bool) -> list[dict[str, Any]]:
    """Files and folders below `folder`, as the Hub lists them."""
    start = f"{folder}/" if folder else ""
    rows: dict[str, dict[str, Any]] = {}
    for path, blob in sorted(tree.items()):
        if not path.startswith(start):
            continue
        parts = path.removeprefix(start).split("/")
        for depth in range(1, len(parts)):
            name = start + "/".join(parts[:depth])
            oid = Blob(name.encode()).git_oid
            rows.setdefault(name, {"type": "directory", "oid": oid, "size": 0, "path": name})
        rows[path] = {"type": "file", "oid": blob.git_oid, "size": len(blob.data), "path": path}
        if blob.lfs:
            pointer = len(blob.pointer)
            lfs = {"oid": blob.sha256, "size": len(blob.data), "pointerSize": pointer}
            rows[path]["lfs"] = lfs
    deep = rows.values()
    return [row for row in deep if recursive or "/" not in row["path"].removeprefix(start)]


def _front_matter(text: str, strict: bool = False) -> dict[str, Any]:
    """The YAML block at a card's head. `strict` raises ValueError with what is wrong."""
    match = re.match(r"---\r?\n(.*?)\r?\n---\r?(\n|$)", text, re.S)
    try:
        matter = yaml.safe_load(match[1]) if match else {}
    except yaml.YAMLError as error:
        if strict:
            raise ValueError(f"YAML: {error}") from error
        return {}
    if not isinstance(matter or {}, dict):
        if strict:
            raise ValueError("YAML: not a mapping")
        return {}
    return json.loads(json.dumps(matter or {}, default=str))


def _content(request: web.Request, data: bytes, headers: Mapping[str, str]) -> web.Response:
    """The bytes, or the range of them that was asked for."""
    headers = {"Accept-Ranges": "bytes", **headers}
    match = re.fullmatch(r"bytes=(\d+)-(\d*)", request.headers.get("Range", ""))
    if match is None:
        return web.Response(body=data, headers=headers)
    first, last = int(match[1]), min(int(match[2] or len(data) - 1), len(data) - 1)
    if first > last:
        return web.Response(status=416, headers={"Content-Range": f"bytes */{len(data)}"})
    headers["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
    return web.Response(status=206, body=data[first : last + 1], headers=headers)


def _discussion(repo: Repo, discussion: Discussion) -> dict[str, Any]:
    return {
        "num": discussion.num,
        "title": discussion.title,
        "author": {"name": discussion.author},
        "createdAt": _time(discussion.created_at),
        "status": discussion.status,
        "isPullRequest": discussion.is_pull_request,
        "repo": {"name": repo.id, "type": repo.kind},
        "repoOwner": {"name": repo.namespace},
    }


def _event(kind: str, user: str, data: Mapping[str, Any]) -> dict[str, Any]:
    moment = _time(now())
    id = Blob(f"{kind}{moment}{sorted(data)}".encode()).git_oid
    author = {"name": user}
    return {"id": id, "type": kind, "createdAt": moment, "author": author, "data": dict(data)}


def _comment(user: str, text: str) -> dict[str, Any]:
    latest = {"raw": text, "html": text}
    return _event("comment", user, {"edited": False, "hidden": False, "latest": latest})


def _time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03}Z"


def _refusal(refused: Refused, headers: Mapping[str, str]) -> web.Response:
    all_headers = {"X-Error-Message": quote(refused.message, safe=" ,.:;()'/=@-"), **headers}
    if refused.code:
        all_headers["X-Error-Code"] = refused.code
    body = {"error": refused.message}
    return web.json_response(body, status=refused.status, headers=all_headers)


def _cut(request: web.Request) -> web.Response:
    """Breaks the connection; whatever is returned reaches nobody."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def _half(request: web.Request, response: web.StreamResponse) -> web.StreamResponse:
    """Answers with the whole length announced, half the body sent, and the connection broken."""
    body = response.body if isinstance(response, web.Response) else b""
    assert isinstance(body, bytes)
    begun = web.StreamResponse(status=response.status, headers=response.headers)
    begun.content_length = len(body)
    await begun.prepare(request)
    await begun.write(body[: len(body) // 2])
    await asyncio.sleep(0.05)  # what was written is on its way
    assert request.transport is not None
    request.transport.abort()
    return begun


if __name__ == "__main__":
    with Hub() as served:
        user_token = served.add_user("alice", "lab")
        for name, value in served.environment(user_token, Path.home() / ".cache/loopback").items():
            print(f"export {name}={value}")
        threading.Event().wait()
