"""Did a value come back as it was sent?"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Set
from datetime import datetime
from typing import Any

from pydantic import BaseModel


def shown(value: object) -> str:
    """A value for a message: shortened, with its type."""
    text = repr(value)
    return f"{text if len(text) <= 80 else text[:77] + '...'} ({type(value).__name__})"


def same(sent: Any, received: Any) -> bool:
    """Equal in value and type, all the way down. Datetimes are equal when they mean one instant, an int may
    arrive as the float that a field asked for, NaN equals NaN."""
    if type(sent) is not type(received):
        return type(sent) is int and type(received) is float and sent == received
    match sent:
        case float():
            return sent == received or (math.isnan(sent) and math.isnan(received))
        case datetime():
            return _same_instant(sent, received)
        case BaseModel():
            return _same_mapping(_model_values(sent), _model_values(received))
        case Mapping():
            return _same_mapping(sent, received)
        case list() | tuple():
            return len(sent) == len(received) and all(map(same, sent, received))
        case Set():
            return sent == received and {type(x) for x in sent} == {type(x) for x in received}
        case _ if dataclasses.is_dataclass(sent):
            return all(
                same(getattr(sent, f.name), getattr(received, f.name)) for f in dataclasses.fields(sent)
            )
        case _:
            return bool(sent == received)


def _same_instant(sent: datetime, received: datetime) -> bool:
    if (sent.tzinfo is None) != (received.tzinfo is None):
        return False
    return sent == received if sent.tzinfo is None else sent.timestamp() == received.timestamp()


def _model_values(model: BaseModel) -> dict[str, Any]:
    return {**model.__dict__, **(model.__pydantic_extra__ or {})}


def _same_mapping(sent: Mapping[Any, Any], received: Mapping[Any, Any]) -> bool:
    return (
        len(sent) == len(received)
        and all(key in received and same(value, received[key]) for key, value in sent.items())
        and {type(key) for key in sent} == {type(key) for key in received}
    )
