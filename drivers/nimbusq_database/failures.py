"""A failure that only `push` must tell from others."""

from nimbusq.errors import StoreUnavailable


class OutcomeUnknown(StoreUnavailable):
    """The connection was lost while the commit was under way: it may have taken effect or not."""
