"""What tokens cost: a dated table of list prices. What the table does not know has no cost."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kernelmark.evaluators.metering.ledger import Usage

TABLE = Path(__file__).with_name("prices.json")

#: classes that are charged; reasoning is part of output
CLASSES = ("in_uncached", "in_cache_read", "in_cache_write_5m", "in_cache_write_1h", "out_total")


@dataclass(frozen=True)
class Tier:
    """Dollars a token by class, for requests with at least so many input tokens."""

    from_input_tokens: int
    usd: dict[str, float]


@dataclass(frozen=True)
class PriceTable:
    """Prices by model name, as providers name them. `id` is the date that they were collected."""

    id: str
    models: dict[str, tuple[Tier, ...]]

    def cost_usd(self, model: str, usage: Usage) -> float | None:
        """Cost of one request; None where the model, or a class of tokens it used, has no price."""
        tiers = self.models.get(model)
        if tiers is None:
            return None
        inputs = usage.total - usage.out_total
        prices = [tier for tier in tiers if inputs >= tier.from_input_tokens][-1].usd
        spent = {name: getattr(usage, name) for name in CLASSES if getattr(usage, name)}
        if not spent.keys() <= prices.keys():
            return None
        return sum(prices[name] * tokens for name, tokens in spent.items())


@cache
def price_table(path: Path = TABLE) -> PriceTable:
    """The table in `path`."""
    data = json.loads(path.read_text())
    models: dict[str, tuple[Tier, ...]] = {}
    for name, entry in data["models"].items():
        tiers = tuple(_tier(row, data["per_tokens"]) for row in entry["tiers"])
        models.update(dict.fromkeys([name, *entry["aliases"]], tiers))
    return PriceTable(data["id"], models)


def _tier(row: dict[str, float], per_tokens: int) -> Tier:
    known = {field.name for field in dataclasses.fields(Usage)}
    usd = {name: value / per_tokens for name, value in row.items() if name in known}
    return Tier(int(row["from_input_tokens"]), usd)
