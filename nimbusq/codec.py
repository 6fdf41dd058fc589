"""Bodies: a job's arguments as UTF-8 JSON, and back, with the promise that they arrive as they were sent."""

from __future__ import annotations

import functools
from collections.abc import Sized
from typing import Final, Protocol, TypeVar

from pydantic import TypeAdapter, ValidationError

from nimbusq.errors import SerializationError, UnreadableJob
from nimbusq.jobs import Job
from nimbusq.roundtrip import same, shown

J = TypeVar("J", bound=Job)


class Codec(Protocol):
    """Turns a job's arguments into bytes and back; replace it to compress or encrypt bodies."""

    def encode(self, job: Job) -> bytes:
        """Raises SerializationError for arguments that would not come back as they are."""
        ...

    def decode(self, model: type[J], body: bytes) -> J:
        """Raises UnreadableJob."""
        ...


class JsonCodec:
    """JSON by pydantic: bytes as base64, NaN and infinities as texts, unknown fields of newer senders ignored."""

    def encode(self, job: Job) -> bytes:
        model = type(job)
        try:
            body: bytes = job.__pydantic_serializer__.to_json(job)  # as dump_json, without its arguments
        except (ValueError, TypeError, RecursionError) as error:
            raise SerializationError(
                f"{model.options.name}: the arguments cannot be encoded: {error}"
            ) from error
        if not _is_plain(job):
            _check_round_trip(job, body)
        return body

    def decode(self, model: type[J], body: bytes) -> J:
        try:
            job: J = _adapter(model).validate_json(body, extra="ignore")
        except (ValidationError, ValueError, RecursionError) as error:
            raise UnreadableJob(f"the arguments of {model.options.name} cannot be read: {error}") from error
        return job


@functools.cache
def _adapter(model: type[J]) -> TypeAdapter[J]:
    return TypeAdapter(model)


# --- the round trip ------------------------------------------------------------------------------------------

_PLAIN: Final = frozenset({int, str, bool, type(None)})


@functools.cache
def _plain_fields(model: type[Job]) -> frozenset[str] | None:
    """Names of the fields if each is annotated with a plain type only, and nothing customises the model."""
    decorators = model.__pydantic_decorators__
    custom: list[Sized] = [decorators.validators, decorators.field_validators, decorators.root_validators]
    custom += [decorators.field_serializers, decorators.model_serializers, decorators.model_validators]
    if any(custom) or any(
        spec.metadata or spec.annotation not in _PLAIN for spec in model.model_fields.values()
    ):
        return None
    return frozenset(model.model_fields)


def _is_plain(job: Job) -> bool:
    """Integers, texts and booleans under equal annotations always survive; checking them would cost more than
    sending them."""
    values = job.__dict__
    return values.keys() == _plain_fields(type(job)) and _PLAIN.issuperset(map(type, values.values()))


def _check_round_trip(job: Job, body: bytes) -> None:
    model = type(job)
    try:
        back = _adapter(model).validate_json(body)
    except ValidationError as error:
        raise SerializationError(
            f"{model.options.name}: the worker could not read these arguments: {error}"
        ) from error
    for name in model.model_fields:
        sent, received = getattr(job, name), getattr(back, name)
        if not same(sent, received):
            field = model.model_fields[name].alias or name
            raise SerializationError(
                f"{model.options.name}: {field}={shown(sent)} would arrive as {shown(received)}. "
                "Annotate the field so that JSON keeps it, or send something simpler."
            )
