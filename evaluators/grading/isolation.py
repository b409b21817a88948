"""What keeps a candidate from anything but its arguments, and an account of what is in force.

Two layers. Where bubblewrap is installed the server, and all it forks, sees a read-only root that
holds the interpreter, the libraries, the device files and nothing else. Each runner then goes into
its own process, mount, IPC and network namespaces with a private scratch folder and /dev/shm (and
builds that root itself where there is no bubblewrap), takes limits, becomes `nobody`, and loses
every capability. What the machine does not allow is left out, and the report says so; nothing here
hides a failure. `Isolation.describe` goes into the verdict's environment.

It does not filter system calls, and it does not keep a candidate from the device's own driver.
Linux, by ctypes. Device layer.
"""

from __future__ import annotations

import contextlib
import ctypes
import glob
import os
import resource
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

CLONE_NEWNS = 0x00020000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_REMOUNT, _MS_BIND, _MS_REC = 1, 2, 4, 32, 4096, 16384
_MS_PRIVATE = 1 << 18
_MNT_DETACH = 2
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
_CAPABILITY_VERSION_3 = 0x20080522

NOBODY = 65534
OWN_PROCESSES = "own process namespace"
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc", "/opt", "/sys")
_DEVICES = ("null", "zero", "full", "random", "urandom")
#: device files of accelerators, by vendor: NVIDIA, AMD, Intel and others, Ascend, Moore Threads
_ACCELERATORS = (
    *("nvidia*", "kfd", "dri", "davinci*", "devmm_svm", "hisi_hdc"),
    *("mthreads*", "mtgpu*", "iluvatar*", "mxcd*"),
)
#: variables that a helper process inherits; everything else (keys, paths of the user) stays out
_KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "TZ")
_KEPT_PREFIXES = (
    *("CUDA_", "NVIDIA_", "HIP_", "ROCM_", "ROCR_", "HSA_", "ASCEND_", "MUSA_", "TRITON_"),
)
#: libraries of the host compute with one thread: a runner's threads are the candidate's
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_NEVER = ("TRITON_CACHE_DIR", "TRITON_HOME", "TRITON_INTERPRET", "TRITON_DUMP_DIR")

#: the one place where a runner may write; a tmpfs of its own
SCRATCH = "/scratch"
SCRATCH_BYTES = 2 << 30
#: where a baseline's runner, and no other, finds the folder that keeps what baselines compile
CACHE = "/baseline-cache"


@dataclass(frozen=True)
class Limits:
    """Resource limits of a runner. `memory_bytes` None: no limit (CUDA reserves address space)."""

    memory_bytes: int | None = None
    file_bytes: int = 1 << 30
    processes: int = 512
    files: int = 1024
    cpu_s: int = 3600


@dataclass
class Isolation:
    """What is in force (`parts`) and what could not be had (`missing`), each a few words."""

    parts: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    def attempt(self, what: str, action: Callable[[], None]) -> bool:
        """Does `action`; an OSError means that `what` is not to be had here."""
        try:
            action()
        except OSError as error:
            self.missing.append(f"{what} ({error.strerror or error})")
            return False
        self.parts.append(what)
        return True

    def describe(self) -> str:
        """One line for the verdict."""
        text = ", ".join(self.parts) or "none"
        return text + (f"; not available: {', '.join(self.missing)}" if self.missing else "")


def environment() -> dict[str, str]:
    """The variables that helper processes start with."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in _KEPT_VARIABLES or (name.startswith(_KEPT_PREFIXES) and name not in _NEVER)
    }
    fixed = {"HOME": "/", "LANG": "C.UTF-8", **dict.fromkeys(_ONE_THREAD, "1")}
    return {"PATH": os.defpath, **kept, **fixed}


def visible_paths(package: Path, more: Sequence[str] = ()) -> list[str]:
    """What a helper may read: the system, the interpreter, torch and its kin, our own code.

    `more`: further folders (of a chip's adapter that is installed elsewhere).
    """
    libraries = [
        os.path.dirname(os.path.dirname(str(module.__file__)))
        for name in ("torch", "triton", "numpy")
        if (module := sys.modules.get(name)) is not None and module.__file__
    ]
    own = [str(package / "evaluators"), str(package / "operators")]
    search = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    wanted = [
        *_SYSTEM,
        sys.prefix,
        sys.base_prefix,
        sys.exec_prefix,
        *libraries,
        *search,
        *own,
        *more,
    ]
    found = sorted({os.path.realpath(p) for p in wanted if p and os.path.isdir(p)} | _links(wanted))
    return [p for p in found if not any(p.startswith(f"{q}/") for q in found)]


def _links(paths: Sequence[str]) -> set[str]:
    """Those of `paths` that are links at the root (``/bin -> usr/bin``): kept as they are."""
    return {p for p in paths if os.path.islink(p) and os.path.dirname(p) == "/"}


def device_files() -> list[str]:
    """The device files that helpers may open: the harmless ones and accelerators."""
    names = [f"/dev/{name}" for name in _DEVICES]
    return names + [path for p in _ACCELERATORS for path in sorted(glob.glob(f"/dev/{p}"))]


def cache_folder(wanted: str = "") -> str:
    """The folder for what baselines compile, made if need be; empty where there is no safe one.

    What lies there is run as our own code. So nobody else may have had a hand in it: by default it
    is in a folder that only this user can enter. `wanted`: another, which is the caller's choice.
    """
    private = os.path.join(tempfile.gettempdir(), f"kernelmark-{os.geteuid()}")
    try:
        if not wanted:
            os.makedirs(private, mode=0o700, exist_ok=True)
            found = os.lstat(private)
            if found.st_uid != os.geteuid() or found.st_mode & 0o170077 != stat.S_IFDIR:
                return ""
        folder = os.path.realpath(wanted or os.path.join(private, "baseline"))
        os.makedirs(folder, mode=0o700, exist_ok=True)
        if os.geteuid() == 0:  # runners are nobody
            os.chown(folder, NOBODY, NOBODY)
    except OSError:
        return ""
    return folder


def bubblewrap(paths: Sequence[str], cache: str = "") -> list[str]:
    """Words to put before a command so that it runs in bubblewrap and sees `paths`.

    `cache`: folder to be seen, and written to, as `CACHE`. Empty where bubblewrap is not installed
    or not allowed.
    """
    program = shutil.which("bwrap")
    if program is None:
        return []
    words = [program, "--unshare-net", "--unshare-ipc", "--unshare-uts", "--cap-add", "ALL"]
    if os.geteuid() != 0:
        words += ["--unshare-user", "--uid", "0", "--gid", "0"]
    for path in paths:
        if os.path.islink(path):
            words += ["--symlink", os.readlink(path), path]
        else:
            # Folders on the way, named one by one: made in passing they would be root's alone.
            for folder in reversed(Path(path).parents[:-1]):
                words += ["--dir", str(folder)]
            words += ["--ro-bind", path, path]
    if cache:
        words += ["--bind", cache, CACHE]
    words += ["--proc", "/proc", "--tmpfs", "/dev", "--tmpfs", SCRATCH]
    words += ["--setenv", "TMPDIR", SCRATCH, "--setenv", "HOME", SCRATCH]
    for path in device_files():
        words += ["--dev-bind", path, path]
    words += ["--dir", "/dev/shm", "--symlink", "/proc/self/fd", "/dev/fd"]
    words += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/", "--"]
    trial = subprocess.run([*words, "/bin/true"], capture_output=True, check=False)
    return words if trial.returncode == 0 else []


def become_root_of_namespace() -> None:
    """An ordinary user enters a user namespace of its own, in which it may make the others."""
    uid, gid = os.geteuid(), os.getegid()
    _unshare(CLONE_NEWUSER)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
    Path("/proc/self/gid_map").write_text(f"0 {gid} 1")


@contextlib.contextmanager
def child_in_new_pid_namespace(report: Isolation) -> Iterator[None]:
    """The next fork of this process becomes the first process of a namespace of its own.

    When that process ends, however it ends, the kernel kills everything that it started.
    """
    entered = report.attempt(OWN_PROCESSES, lambda: _unshare(CLONE_NEWPID))
    try:
        yield
    finally:
        if entered:
            _rejoin_pid_namespace()


def enter(
    report: Isolation,
    limits: Limits,
    paths: Sequence[str],
    hidden: str,
    *,
    rooted: bool,
    cache: str = "",
) -> None:
    """Isolates this freshly forked runner, which will see `paths` but not the folder `hidden`.

    `rooted`: bubblewrap has made the root already, with `cache` in it; else `cache` is put into the
    root that is made here. A runner that something is hidden from does not see it.
    """
    if report.attempt("own mounts", lambda: _unshare(CLONE_NEWNS)):
        _mount("none", "/", None, _MS_REC | _MS_PRIVATE)
        if not rooted:
            shown = "" if hidden else cache
            report.attempt("read-only root", lambda: _build_root(paths, shown))
        else:
            report.parts.append("read-only root (bubblewrap)")
        report.attempt("private scratch", lambda: _tmpfs(SCRATCH, SCRATCH_BYTES))
        report.attempt("private /dev/shm", lambda: _tmpfs("/dev/shm", SCRATCH_BYTES))
        if OWN_PROCESSES in report.parts:
            report.attempt("own /proc", lambda: _mount("proc", "/proc", "proc", _MS_NOSUID))
        if hidden:
            report.attempt("no operators", lambda: _tmpfs(hidden, 4096))
    if rooted and hidden and cache:
        _tmpfs(CACHE, 4096)  # or there is no runner: this is where foreign code could stay
    report.attempt("no network", lambda: _unshare(CLONE_NEWNET))
    report.attempt("own IPC", lambda: _unshare(CLONE_NEWIPC))
    report.attempt("limits", lambda: _limit(limits))
    if os.geteuid() == 0:
        report.attempt("user nobody", _become_nobody)
    report.attempt("no capabilities", _drop_capabilities)
    report.attempt("no new privileges", lambda: _prctl(_PR_SET_NO_NEW_PRIVS, 1))


def die_with_parent(parent: int) -> None:
    """This process is killed when its parent ends. To be called after any change of user."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent and os.getppid() not in (parent, 0):  # 0: the parent is outside our namespace
        os._exit(1)


def close_other_descriptors(keep: set[int]) -> None:
    """Closes every descriptor but `keep`; standard streams go to /dev/null."""
    null = os.open("/dev/null", os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    highest = max(keep | {2})
    for fd in range(3, highest):
        if fd not in keep:
            with contextlib.suppress(OSError):
                os.close(fd)
    os.closerange(highest + 1, os.sysconf("SC_OPEN_MAX"))


def _build_root(paths: Sequence[str], cache: str) -> None:
    """A new root in a tmpfs: `paths`, read-only, the device files, and `cache` if there is one."""
    devices = device_files()
    # Any folder that holds none of them will do: the mount covers it in this namespace only.
    free = [
        folder
        for folder in ("/mnt", "/media", "/srv", "/home", "/var")
        if os.path.isdir(folder) and not any(p.startswith(folder) for p in paths)
    ]
    if not free:
        raise OSError(0, "no folder to build it in")
    root = free[0]
    _mount("tmpfs", root, "tmpfs", _MS_NOSUID, "mode=755,size=16m")
    for path in paths:
        target = root + path
        if os.path.islink(path):
            os.symlink(os.readlink(path), target)
            continue
        os.makedirs(target, exist_ok=True)
        _mount(path, target, None, _MS_BIND | _MS_REC)
        _mount("none", target, None, _MS_BIND | _MS_REMOUNT | _MS_RDONLY | _MS_NOSUID)
    for folder in ("/proc", "/dev/shm", "/tmp", SCRATCH, "/old"):
        os.makedirs(root + folder, exist_ok=True)
    if cache:
        os.makedirs(root + CACHE)
        _mount(cache, root + CACHE, None, _MS_BIND)
    _mount("/proc", root + "/proc", None, _MS_BIND | _MS_REC)
    for path in devices:
        target = root + path
        if os.path.isdir(path):
            os.makedirs(target, exist_ok=True)
        else:
            Path(target).touch()
        _mount(path, target, None, _MS_BIND | _MS_REC)
    os.symlink("/proc/self/fd", root + "/dev/fd")
    _call("pivot_root", root.encode(), (root + "/old").encode())
    os.chdir("/")
    _call("umount2", b"/old", _MNT_DETACH)
    os.rmdir("/old")
    _mount("none", "/", None, _MS_REMOUNT | _MS_RDONLY | _MS_NOSUID, "mode=755,size=16m")


def _limit(limits: Limits) -> None:
    wanted = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: limits.file_bytes,
        resource.RLIMIT_NOFILE: limits.files,
        resource.RLIMIT_CPU: limits.cpu_s,
    }
    if os.geteuid() == 0:  # counted per user: `nobody` has few, an ordinary user many
        wanted[resource.RLIMIT_NPROC] = limits.processes
    if limits.memory_bytes is not None:
        wanted[resource.RLIMIT_AS] = limits.memory_bytes
    for kind, value in wanted.items():
        _, hard = resource.getrlimit(kind)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))
    with contextlib.suppress(OSError):  # the first to go when memory runs out
        Path("/proc/self/oom_score_adj").write_text("1000")


def _become_nobody() -> None:
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)


def _drop_capabilities() -> None:
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    none = (ctypes.c_uint32 * 6)()
    _call("capset", header, none)


def _tmpfs(path: str, nbytes: int) -> None:
    mode = f"mode=1777,size={nbytes}"
    _mount("tmpfs", path, "tmpfs", _MS_NOSUID | _MS_NODEV, mode)


def _rejoin_pid_namespace() -> None:
    fd = os.open("/proc/self/ns/pid", os.O_RDONLY)
    try:
        _call("setns", fd, CLONE_NEWPID)
    finally:
        os.close(fd)


def _unshare(flags: int) -> None:
    _call("unshare", flags)


def _mount(source: str, target: str, kind: str | None, flags: int, data: str = "") -> None:
    kind_bytes = kind.encode() if kind else None
    flag_word = ctypes.c_ulong(flags)
    _call("mount", source.encode(), target.encode(), kind_bytes, flag_word, data.encode() or None)


def _prctl(option: int, value: int) -> None:
    zero = ctypes.c_ulong(0)
    _call("prctl", option, ctypes.c_ulong(value), zero, zero, zero)


_SYSCALLS = {"pivot_root": {"x86_64": 155, "aarch64": 41}}  # those that libc does not wrap


def _call(name: str, *arguments: object) -> None:
    """A function of libc that answers -1 on failure. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if name in _SYSCALLS:
        number = _SYSCALLS[name].get(os.uname().machine)
        if number is None:
            raise OSError(0, f"{name} is not known on {os.uname().machine}")
        code = libc.syscall(ctypes.c_long(number), *arguments)
    else:
        code = getattr(libc, name)(*arguments)
    if code == -1:
        error = ctypes.get_errno()
        raise OSError(error, f"{name}: {os.strerror(error)}")
