"""A Ray cluster that runs already: grades where the chips are, compiles on any CPU.

Nodes advertise accelerators as resources: ``ray start --resources='{"chip:nvidia-h200": 8}'``.
For each there is one actor, which has one accelerator of its node to itself (`devices.reserve`, and
the judge's own lock). What a dead node or process was doing is done again elsewhere, up to `TRIES`
times; what a candidate does is never repeated. Results come back to the one process that owns the
run folder, which writes each once, so it does not matter who is killed when.

Every node has the same version of kernelmark (checked), and the torch and triton of its chip's
vendor. Nodes with accelerators are started with as many CPUs as accelerators
(``ray start --num-cpus 8``), so that nothing else lands where something is timed.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import logging
import os
import queue
import socket
import threading
import time
from dataclasses import asdict
from typing import Any

import ray
from ray import exceptions

from kernelmark.benchmark.errors import InfrastructureError, UserError
from kernelmark.evaluators.chips.base import Chip
from kernelmark.evaluators.chips.portability import Compiler, portability
from kernelmark.evaluators.chips.registry import get_chip
from kernelmark.evaluators.grading.devices import DeviceError, reserve
from kernelmark.evaluators.grading.pinned import NoDevices, Pool
from kernelmark.evaluators.grading.records import (
    Candidate,
    Portability,
    Verdict,
    from_json,
    to_json,
)
from kernelmark.evaluators.grading.settings import Settings

TRIES = 5  #: for one candidate, on nodes that die
CONNECT_S = 10.0
START_S = 300.0  #: for an actor to have its accelerator, once its node has room
#: for an accelerator, while other runs have them or nodes are gone; then the run is given up, and
#: can be resumed
PATIENCE_S = 6 * 3600.0
#: what the cluster itself may fail; anything else is a bug, and is raised
_LOST = (
    exceptions.RayActorError,
    exceptions.WorkerCrashedError,
    exceptions.NodeDiedError,
    exceptions.ObjectLostError,
    exceptions.OutOfMemoryError,
    exceptions.GetTimeoutError,
)
#: Ray hides NVIDIA's and AMD's devices from actors that ask for none of its own GPUs
_SEEING = {"env_vars": {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}}
MOST_COMPILERS = 64  #: threads of this process that wait for compilations


class RayExecutor:
    """An `Executor`. `close` ends its actors and leaves the cluster as it was."""

    def __init__(
        self, chip: Chip | None, address: str = "", resource: str = "", most: int = 0
    ) -> None:
        """`address` of the cluster; else ``RAY_ADDRESS`` or the cluster of this machine.

        `resource` names one where the cluster has several of `chip`; at `most` so many accelerators
        are taken (0: all), and kept until `close`: a run that finds them taken waits. Raises
        `InfrastructureError` where there is no cluster, `UserError` where it has no such chip.
        """
        self._owner = not ray.is_initialized()
        if self._owner:
            _connect(address)
        self._chip = chip
        self._resource, there = _resource(chip, resource) if chip is not None else ("", 1)
        self.slots = min(there, most) if most else there
        spare = _resources().get("CPU", 0) - self.slots
        self.compilers = min(max(spare, 1), MOST_COMPILERS)
        self._compiler = Compiler() if spare < 1 else None  # every CPU is a grader's
        self._idle: queue.Queue[Any] = queue.Queue()
        self._lock = threading.Lock()
        self._actors: set[Any] = set()
        self._wanted = self.slots if chip is not None else 0
        self._closed = threading.Event()
        for _ in range(self._wanted):
            self._add()

    def grade(self, candidate: Candidate, settings: Settings) -> Verdict:
        """By whichever accelerator of the cluster is free next."""
        assert self._chip is not None
        why = ""
        for _ in range(TRIES):
            actor = self._take()
            try:
                made = ray.get(
                    actor.grade.remote(to_json(candidate), asdict(settings)),
                    timeout=settings.longest_s + START_S,
                )
            except _LOST as error:
                why = str(error).splitlines()[0]
                self._drop(actor)
                self._add()
                continue
            except (NoDevices, DeviceError) as error:  # its accelerator is sick: go on without
                self._drop(actor)
                self._retire(str(error).splitlines()[-1])
                continue
            self._idle.put(actor)
            return from_json(Verdict, made)
        named = (candidate.operator, candidate.id, self._chip.name, self._chip.attests)
        tier, dataset = settings.tier, settings.dataset
        return Verdict(*named, "infrastructure_error", why, tier=tier, dataset=dataset)

    def compile(self, candidate: Candidate, targets: tuple[str, ...]) -> tuple[Portability, ...]:
        """A task a target, on any CPU of the cluster; here, where graders have taken them all."""
        if self._compiler is not None:
            from kernelmark.operators.registry import get_operator

            operator = get_operator(candidate.operator)
            return tuple(self._compiler.portability(candidate, operator, targets))
        sent = to_json(candidate)
        tasks = [_compile.remote(sent, target) for target in targets]
        try:
            return tuple(from_json(Portability, row) for row in ray.get(tasks))
        except _LOST as error:  # Ray has tried again and again
            raise InfrastructureError(f"{candidate.operator}: not compiled: {error}") from error

    def close(self) -> None:
        """Ends the actors, and with them their judges."""
        self._closed.set()
        with self._lock:
            actors, self._actors = self._actors, set()
        for actor in actors:
            with contextlib.suppress(Exception):  # a cluster that is gone has no actors either
                ray.get(actor.close.remote(), timeout=10)
            with contextlib.suppress(Exception):
                ray.kill(actor)
        self._idle.put(None)
        if self._compiler is not None:
            self._compiler.close()
        if self._owner and ray.is_initialized():
            ray.shutdown()

    def _take(self) -> Any:
        """An actor that is free."""
        try:
            actor = self._idle.get(timeout=PATIENCE_S)
        except queue.Empty:
            raise InfrastructureError(
                f"the cluster has had no {self._resource} for {PATIENCE_S:g} s; "
                "--resume goes on with the run"
            ) from None
        if actor is None or isinstance(actor, Exception) or self._closed.is_set():
            self._idle.put(actor)  # for the others that wait
            raise actor or InfrastructureError("the executor is closed")
        return actor

    def _drop(self, actor: Any) -> None:
        with self._lock:
            self._actors.discard(actor)
        with contextlib.suppress(Exception):
            ray.kill(actor)

    def _retire(self, why: str) -> None:
        """One accelerator fewer. Raises for all that wait where it was the last."""
        with self._lock:
            self._wanted -= 1
            last = self._wanted < 1
        if last:
            self._idle.put(InfrastructureError(f"no accelerator of the cluster is left: {why}"))

    def _add(self) -> None:
        """Asks for an actor; it is used once it says that it is ready, which may be never."""
        threading.Thread(target=self._become_ready, name="ray-actor", daemon=True).start()

    def _become_ready(self) -> None:
        assert self._chip is not None
        while not self._closed.is_set():
            actor = None
            try:
                chosen = _GraderActor.options(resources={self._resource: 1}, runtime_env=_SEEING)
                actor = chosen.remote(self._chip.name, self._resource)
                with self._lock:
                    self._actors.add(actor)
                _wait(actor.ready.remote(), self._closed)
                self._idle.put(actor)
                return
            except _LOST:
                with self._lock:
                    self._actors.discard(actor)
                self._closed.wait(1.0)
            except Exception as error:  # told to whoever waits for an accelerator
                if not self._closed.is_set():
                    self._idle.put(InfrastructureError(str(error)))
                return


class _Grader:
    """Has one accelerator of its node, and a judge pinned to it (`grading.pinned`)."""

    def __init__(self, chip: str, resource: str) -> None:
        self._chip = get_chip(chip)
        here = ray.get_runtime_context().get_node_id()
        nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
        node = next(node for node in nodes if node["NodeID"] == here)
        self._number = reserve(self._chip, int(node["Resources"][resource]))
        self._pool: Pool | None = None

    def ready(self) -> str:
        """The version of kernelmark here."""
        return importlib.metadata.version("kernelmark")

    def grade(self, candidate: dict[str, Any], settings: dict[str, Any]) -> Any:
        """A verdict, as plain values. A judge that dies is replaced here."""
        asked = from_json(Settings, settings)
        if self._pool is None:
            self._pool = Pool(self._chip, [self._number], asked)
            self._pool.wait_ready()
        return to_json(self._pool.grade(from_json(Candidate, candidate), asked).verdict)

    def close(self) -> None:
        """Ends the judge."""
        if self._pool is not None:
            self._pool.close()


_GraderActor: Any = ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0)(_Grader)


@ray.remote(num_cpus=1, max_retries=TRIES, retry_exceptions=False)
def _compile(candidate: dict[str, Any], target: str) -> Any:
    """One row of portability, as plain values."""
    from kernelmark.operators.registry import get_operator

    known = from_json(Candidate, candidate)
    (row,) = portability(known, get_operator(known.operator), [target], processes=1)
    return to_json(row)


def _connect(address: str) -> None:
    address = address or os.environ.get("RAY_ADDRESS") or "auto"
    try:
        if address.count(":") == 1:  # Ray itself would wait for a minute, and then exit
            host, _, port = address.partition(":")
            socket.create_connection((host, int(port)), timeout=CONNECT_S).close()
        ray.init(
            address=address,
            log_to_driver=False,
            logging_level=logging.ERROR,
            namespace="kernelmark",
        )
    except (OSError, ConnectionError, RuntimeError, ValueError) as error:
        first = str(error).splitlines()[0]
        raise InfrastructureError(f"no Ray cluster: {first}") from error


def _resource(chip: Chip, wanted: str) -> tuple[str, int]:
    """The resource that stands for `chip` in the cluster, and how many of it there are."""
    have = _resources()
    found = [n for n in have if n == f"chip:{chip.name}" or n.startswith(f"chip:{chip.name}-")]
    chosen = [wanted] if wanted else found
    if wanted and wanted not in found:
        raise UserError(f"the cluster has no {wanted} of {chip.name}; it has {_listed(have)}")
    if not chosen:
        raise UserError(f"the cluster has no chip:{chip.name}; it has {_listed(have)}")
    if len(chosen) > 1:
        raise UserError(f"the cluster has {', '.join(sorted(chosen))}: name one with --resource")
    return chosen[0], have[chosen[0]]


def _resources() -> dict[str, int]:
    have: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    return {name: int(count) for name, count in have.items()}


def _listed(resources: dict[str, int]) -> str:
    return ", ".join(sorted(n for n in resources if n.startswith("chip:"))) or "no chips at all"


def _wait(reference: Any, closed: threading.Event) -> None:
    """Waits for an actor whose node may have no room yet; compares versions."""
    began = time.monotonic()
    while not ray.wait([reference], timeout=1.0)[0]:
        if closed.is_set():
            raise exceptions.GetTimeoutError("closed")
        if time.monotonic() - began > 24 * 3600:
            raise exceptions.GetTimeoutError("no room in the cluster for a day")
    there, here = ray.get(reference), importlib.metadata.version("kernelmark")
    if there != here:
        raise RuntimeError(f"a node has kernelmark {there}, this machine has {here}")
