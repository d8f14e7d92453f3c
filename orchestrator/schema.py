"""What replicas share in Redis, and the one script that writes and reads it.

| key | type | fields, units | expires |
|---|---|---|---|
| `outrider:acceptance:{target}:{method}:{class}` | hash | `rounds`, `drafted:{position}`, `accepted:{position}`: integers that only grow, position from 0 | 7 days behind the last write |
| `outrider:survival:{target}:{method}:{class}` | hash | `tried:{position}`, `kept:{position}`: decayed numbers of rounds whose walk came there, and that kept it; `at`: Unix time they are decayed to, seconds | 7 days |
| `outrider:latency:{target}:{method}` | hash | `draft_fixed_us`, `draft_step_us`, `draft_wire_us`: moving averages of who wrote last, microseconds | 1 day |
| `outrider:service:{role}:{address}` | string | Unix time of the last sign of life, seconds | 10 seconds |
| `outrider:batch:{name}` | string | empty: the batch is in | 1 hour |

Survival counts lose half their weight in `HALF_LIFE_S`; each write first decays what is there. A
batch whose reply was lost is sent again under its name and taken once. A key of another type than
this is left alone, and what was meant for it is dropped.
"""  # noqa: E501 - a table

from __future__ import annotations

import json
import math
import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from orchestrator.survival import Counts

EXPIRE_S = 7 * 24 * 3600
LATENCY_EXPIRE_S = 24 * 3600
SERVICE_EXPIRE_S = 10
BATCH_EXPIRE_S = 3600
HALF_LIFE_S = 3600.0
MOST_POSITIONS = 128

# KEYS: the batch's name, then those of the entries. ARGV: JSON of [hour, half-life, entries], an
# entry [kind, expiry, fields]. Returns JSON: the fields of each key that is a hash, else false.
SCRIPT = """
local batch_expiry, half_life, entries = unpack(cjson.decode(ARGV[1]))
local fresh = redis.call('SET', KEYS[1], '', 'NX', 'EX', batch_expiry)
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1e6
local found = {}
for i, entry in ipairs(entries) do
  local key, kind, expiry, fields = KEYS[i + 1], entry[1], entry[2], entry[3]
  local type = redis.call('TYPE', key).ok
  if kind == 'service' then
    if fresh then redis.call('SET', key, string.format('%.0f', now), 'EX', expiry) end
    found[i] = false
  elseif type ~= 'hash' and type ~= 'none' then
    found[i] = false
  else
    if fresh and next(fields) then
      if kind == 'survival' then
        local at = tonumber(redis.call('HGET', key, 'at') or now) or now
        local keep = math.min(1, 0.5 ^ ((now - at) / half_life))
        local old = redis.call('HGETALL', key)
        for j = 1, #old, 2 do
          if old[j] ~= 'at' then
            local sum = (tonumber(old[j + 1]) or 0) * keep + (fields[old[j]] or 0)
            fields[old[j]] = sum
          end
        end
        for name, value in pairs(fields) do
          redis.call('HSET', key, name, string.format('%.17g', value))
        end
        redis.call('HSET', key, 'at', string.format('%.6f', now))
      else
        for name, value in pairs(fields) do
          if kind == 'counts' then redis.pcall('HINCRBY', key, name, value)
          else redis.call('HSET', key, name, string.format('%.17g', value)) end
        end
      end
      redis.call('EXPIRE', key, expiry)
    end
    found[i] = redis.call('HGETALL', key)
  end
end
return cjson.encode(found)
"""


def acceptance_key(target: str, method: str, class_: str) -> str:
    """The hash under which a method's counts are kept."""
    return f"outrider:acceptance:{target}:{method}:{class_}"


def survival_key(target: str, method: str, class_: str) -> str:
    """The hash of its decayed trials."""
    return f"outrider:survival:{target}:{method}:{class_}"


def latency_key(target: str, method: str) -> str:
    """The hash of its latency profile."""
    return f"outrider:latency:{target}:{method}"


def service_key(role: str, address: str) -> str:
    """The sign of life of a replica."""
    return f"outrider:service:{role}:{address}"


@dataclass
class Batch:
    """What is written together: fields by key, of each kind."""

    counts: Mapping[str, Counter[str]] = field(default_factory=dict)
    survival: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    latency: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    services: tuple[str, ...] = ()
    name: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __bool__(self) -> bool:
        """Whether there is anything to write or read."""
        return bool(self.counts or self.survival or self.latency or self.services)

    def _entries(self) -> list[tuple[str, str, int, Mapping[str, float]]]:
        return [
            *((key, "counts", EXPIRE_S, fields) for key, fields in self.counts.items()),
            *((key, "survival", EXPIRE_S, fields) for key, fields in self.survival.items()),
            *((key, "latency", LATENCY_EXPIRE_S, fields) for key, fields in self.latency.items()),
            *((key, "service", SERVICE_EXPIRE_S, {}) for key in self.services),
        ]

    @property
    def keys(self) -> list[str]:
        """KEYS of the script."""
        return [f"outrider:batch:{self.name}", *(entry[0] for entry in self._entries())]

    @property
    def argument(self) -> str:
        """ARGV of the script."""
        entries = [[kind, expiry, dict(fields)] for _, kind, expiry, fields in self._entries()]
        return json.dumps([BATCH_EXPIRE_S, HALF_LIFE_S, entries])

    def read(self, reply: Any) -> dict[str, dict[str, float]]:
        """The numbers that the server has, by key; what is no finite number above 0 is left out.

        Raises:
            ValueError: the reply is not the script's.
        """
        found = json.loads(reply)
        if not isinstance(found, list | dict):
            raise ValueError(f"reply: {type(found).__name__}, limit a list")
        hashes: dict[str, dict[str, float]] = {}
        for key, flat in zip(self.keys[1:], found if isinstance(found, list) else [], strict=False):
            if isinstance(flat, list):
                hashes[key] = _numbers(flat)
        return hashes


def trials(fields: Mapping[str, float]) -> Counts:
    """The counts of a survival hash; a position that kept more than it tried ends them."""
    tried: list[float] = []
    kept: list[float] = []
    for position in range(MOST_POSITIONS):
        n, k = fields.get(f"tried:{position}", 0.0), fields.get(f"kept:{position}", 0.0)
        if n <= 0.0 or k > n:
            break
        tried.append(n)
        kept.append(k)
    return Counts(tried, kept)


def _numbers(flat: list[Any]) -> dict[str, float]:
    numbers = {}
    for name, value in zip(flat[::2], flat[1::2], strict=False):
        try:
            number = float(value)
        except (TypeError, ValueError):
            continue
        if math.isfinite(number) and number >= 0.0:
            numbers[str(name)] = number
    return numbers
