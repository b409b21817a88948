"""A gateway killed at any moment: rows stay, and what was under way is told."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
from benches import CHARGED, STREAMS
from fakes.scripted_upstream import KEY, Asked, Reply, Upstream, serving

from kernelmark.benchmark.errors import UserError
from kernelmark.evaluators.metering.ledger import Ledger, Usage, read_ledger

PROGRAM = Path(__file__).with_name("gateway_process.py")


@dataclass
class Running:
    """A gateway process."""

    process: subprocess.Popen[str]
    root: str
    token: str

    async def ask(self, api: str) -> bytes | None:
        """A whole answer, or None where the gateway died first."""
        path, body = STREAMS[api]
        headers = {"Authorization": f"Bearer {self.token}"}
        try:
            async with (
                aiohttp.ClientSession(headers=headers) as session,
                session.post(f"{self.root}/{path}", json=body) as answer,
            ):
                return await answer.read()
        except aiohttp.ClientError:
            return None

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@contextmanager
def running(ledger: Path, upstream: Upstream) -> Iterator[Running]:
    command = [sys.executable, str(PROGRAM), str(ledger), upstream.url("anthropic"), KEY]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            root, token = process.stdout.readline().split()
            yield Running(process, root, token)
        finally:
            process.kill()


def slow(asked: Asked) -> Reply:
    return Reply(usage=CHARGED[asked.api], text="word " * 50, deltas=10, pause_s=0.02)


@pytest.mark.slow
def test_killed_at_random_moments_nothing_is_lost(tmp_path: Path) -> None:
    """Ten gateways on one ledger, each killed while streams of every dialect pass."""
    path, moments = tmp_path / "ledger.jsonl", random.Random(20)
    whole: list[str] = []

    async def sitting(gateway: Running) -> None:
        async def one(api: str) -> None:
            while (answer := await gateway.ask(api)) is not None:
                whole.append(answer.decode())

        async def later() -> None:
            await asyncio.sleep(moments.uniform(0.05, 0.8))
            gateway.kill()

        await asyncio.gather(later(), *(one(api) for api in STREAMS for _ in range(2)))

    with serving(slow) as upstream:
        for _ in range(10):
            with running(path, upstream) as gateway:
                asyncio.run(sitting(gateway))
        Ledger(path).close()  # what the last one left
        bills = {bill.id: bill.usage for bill in upstream.bills}
    rows = read_ledger(path)
    told = {row.upstream_id: row for row in rows if row.outcome == "ok"}
    for text in whole:  # nothing that a client has in full is uncounted
        assert any(id in text for id in told), text
    assert len(told) >= len(whole) > 0
    assert all(row.usage == bills[row.upstream_id] for row in told.values())
    lost = [row for row in rows if row.outcome == "gateway_abort"]
    assert lost
    assert all((row.usage_source, row.usage) == ("missing", Usage()) for row in lost)
    assert len(bills) - len(told) <= len(lost) <= 10 * 2 * len(STREAMS)
    assert len({row.request for row in rows}) == len(rows)


def test_a_request_under_way_at_a_kill_has_its_row_after(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"

    async def ask_and_kill(gateway: Running) -> None:
        asked = asyncio.create_task(gateway.ask("messages"))
        await asyncio.sleep(0.2)
        gateway.kill()
        assert await asked is None

    with serving(lambda asked: Reply(delay_s=5)) as upstream, running(path, upstream) as gateway:
        asyncio.run(ask_and_kill(gateway))
    assert read_ledger(path) == []
    Ledger(path).close()
    (row,) = read_ledger(path)
    assert (row.outcome, row.usage_source) == ("gateway_abort", "missing")
    assert (row.api, row.model_requested, row.operator) == ("messages", "m", "aten::softmax")
    Ledger(path).close()
    assert read_ledger(path) == [row]


@pytest.mark.parametrize("left", [1, 40, -2])
def test_a_row_torn_by_a_crash_of_the_machine_is_mended(tmp_path: Path, left: int) -> None:
    path = tmp_path / "ledger.jsonl"
    with serving(slow) as upstream, running(path, upstream) as gateway:
        asyncio.run(gateway.ask("messages"))
        asyncio.run(gateway.ask("chat"))
        gateway.kill()
    whole = path.read_bytes()
    first, second = whole.splitlines(keepends=True)
    path.write_bytes(first + second[:left])
    assert len(read_ledger(path)) == 1
    Ledger(path).close()
    assert [row.outcome for row in read_ledger(path)] == ["ok", "gateway_abort"]


def test_two_runs_do_not_share_a_ledger(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path)
    with pytest.raises(UserError, match="another run"):
        Ledger(path)
    ledger.close()
    Ledger(path).close()
