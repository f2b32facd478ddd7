"""What travels from the scheduler's side to the workers in every step, and what comes back."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Step:
    """The metadata of one step; the same for all ranks, so small and plain."""

    native: bytes  # of cairn.Scheduler, for cairn.Worker.bind()
    loads_in_step: bool = False  # a load arrives while this step computes
    released: list[str] = field(default_factory=list)  # finished requests whose blocks nothing touches any more
    failed: list[tuple[str, list[int]]] = field(default_factory=list)  # loads that were promised and not begun: their blocks


@dataclass
class Taken:
    """What a worker reports at the end of a step."""

    received: set[str] = field(default_factory=set)  # requests whose load has ended
    sent: set[str] = field(default_factory=set)  # requests whose blocks may be freed
    failed_blocks: set[int] = field(default_factory=set)  # whose content must not be used
