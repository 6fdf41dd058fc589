"""Exit codes, the same for every command."""

from typing import Final

FAILED: Final = 1
"""The act failed; for `work`: handlers ignored their cancellation and were left behind."""
USAGE: Final = 2
CONFIG: Final = 3
"""The app, a setting or a driver cannot be loaded."""
UNREACHABLE: Final = 4
"""The backend cannot be reached."""
NOT_FOUND: Final = 5
CONFLICT: Final = 6
PARTLY: Final = 7
SCHEMA: Final = 8
"""The stored schema is too old: run `nimbusq migrate up`."""
REFUSED: Final = 10
"""Would ask, but there is nobody to ask: add --yes."""
STALLED: Final = 14
"""The event loop was blocked for longer than the stall limit."""
FORCED: Final = 130
"""The third signal."""
