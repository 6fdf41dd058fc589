"""How fast a queue may start jobs."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from nimbusq.envelope import Rate


class RateLimit(BaseModel):
    """`per_second` starts a second with bursts of `burst`, for the whole fleet.

    The tokens are taken with the claim, so idle workers hold none, and pushes are not limited. Where the driver
    has no limiter and no store is set, this is refused, unless `per_process` asks for a count in each process.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    per_second: float = Field(gt=0, allow_inf_nan=False)
    burst: int = Field(1, ge=1)
    per_process: bool = False

    def of_queue(self, queue: str) -> Rate:
        """The limit as drivers count it."""
        return Rate(key=f"queue:{queue}", per_second=self.per_second, burst=self.burst)
