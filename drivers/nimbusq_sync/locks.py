"""Named locks with a time to live. The unique locks of jobs live in the same table."""

from __future__ import annotations

import secrets

from nimbusq_sync.state import State


class MemoryLocker:
    """`nimbusq.driver.Locker` in memory."""

    def __init__(self, state: State) -> None:
        self._state = state

    async def acquire(self, key: str, ttl: float) -> str | None:
        state = self._state
        with state.lock:
            now = state.now()
            if state.locks.get(key, now) is not None:
                return None
            token = secrets.token_hex(16)
            state.locks.put(key, token, now + ttl, now)
            return token

    async def extend(self, key: str, token: str, ttl: float) -> bool:
        state = self._state
        with state.lock:
            now = state.now()
            if state.locks.get(key, now) != token:
                return False
            state.locks.put(key, token, now + ttl, now)
            return True

    async def release(self, key: str, token: str) -> bool:
        state = self._state
        with state.lock:
            if state.locks.get(key, state.now()) != token:
                return False
            state.locks.drop(key)
            return True

    async def force_release(self, key: str) -> bool:
        state = self._state
        with state.lock:
            held = state.locks.get(key, state.now()) is not None
            state.locks.drop(key)
            return held

    async def holder(self, key: str) -> str | None:
        state = self._state
        with state.lock:
            return state.locks.get(key, state.now())
