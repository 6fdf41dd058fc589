"""What a job is: a `Job` class whose fields are its arguments, or a function made one by `@job`."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Generic, ParamSpec, TypeVar, get_type_hints, overload

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PydanticUserError,
    TypeAdapter,
    ValidationError,
    create_model,
)

from nimbusq.driver import BatchState
from nimbusq.errors import InvalidJob, SerializationError
from nimbusq.options import NAMES, JobOptions
from nimbusq.registry import registry
from nimbusq.roundtrip import same, shown

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)

HOOKS = frozenset({"handle", "failed", "tags", "unique_id", "overlap_key"})
"""Methods of a job that nimbusq calls; no field may bear such a name, nor an option's, but for `name`."""


class Job(BaseModel):
    """A unit of work. Fields are its arguments, `handle` does it, class arguments are its defaults::

        class SendEmail(Job, queue="mail", retries=5, timeout=30):
            user_id: int

            async def handle(self) -> None: ...

    A class that does not define `handle` is a base for others: options are inherited, it is no job itself.
    """

    model_config = ConfigDict(
        extra="forbid",
        ser_json_bytes="base64",
        val_json_bytes="base64",
        ser_json_inf_nan="strings",
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
    )

    options: ClassVar[JobOptions] = JobOptions()

    def handle(self) -> Any:
        """Do the work: ``async def``, or ``def`` to run in a thread. An exception is a failed attempt."""
        raise NotImplementedError(f"{type(self).__name__} does not define handle().")

    def failed(self, error: Exception) -> Any:
        """Called once when the job has failed for good, by the worker that ended it; may be ``async``.

        At most once: the failed store is the sure record.
        """

    def tags(self) -> Any:
        """Further tags of this very job, a list of texts, beside those of the class."""
        return ()

    def unique_id(self) -> str | None:
        """The key of `dispatch_unique` and of `.unique()` without one; None stands for the canonical arguments."""
        return None

    def overlap_key(self) -> str | None:
        """Jobs of this class with an equal key do not run at the same time; None: no such rule."""
        return None

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        cls.options = _options_of(cls, options)
        _refuse_reserved_fields(cls)
        if cls.handle is not Job.handle and not cls.options.abstract:
            registry.add(cls)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__()


def _options_of(job: type[Job], changes: Mapping[str, Any]) -> JobOptions:
    parent: JobOptions = next(
        (vars(base)["options"] for base in job.__mro__[1:] if "options" in vars(base)), JobOptions()
    )
    inherited = {"name": job.__name__, "aliases": (), "abstract": False}
    if job.__name__[:1] == "_" and "name" not in changes:
        inherited["name"] = job.__name__.lstrip("_") or "job"
    try:
        return parent.override({**inherited, **changes})
    except TypeError as error:
        raise TypeError(f"class {job.__name__}: {error}") from None


def _refuse_reserved_fields(job: type[Job]) -> None:
    reserved = ((HOOKS | NAMES | {"options"}) - {"name"}) & set(job.model_fields)
    if reserved and not issubclass(job, FunctionCall):
        raise TypeError(
            f"class {job.__name__}: the field {min(reserved)!r} has the name of a job option or hook. "
            "Give the field another name; options go into the class line."
        )


# --- functions as jobs -------------------------------------------------------------------------------------


class FunctionCall(Job, abstract=True):
    """A call of a `@job` function; its fields are the function's parameters under a prefix."""

    function: ClassVar[Callable[..., Any]]
    injected: ClassVar[frozenset[str]] = frozenset()

    def handle(self, **injected: Any) -> Any:
        return type(self).function(**self.arguments(), **injected)

    def arguments(self) -> dict[str, Any]:
        """The call's arguments by parameter name."""
        return {name[len(_PREFIX) :]: getattr(self, name) for name in type(self).model_fields}


_PREFIX = "arg_"


class FunctionJob(Generic[P, R_co]):
    """A function that is a job: call it as before, or dispatch it."""

    def __init__(
        self, function: Callable[P, R_co], options: Mapping[str, Any], names: Mapping[str, Any]
    ) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._options = options
        self._names = names
        self._signature = inspect.signature(function)
        self.model = self._build_model()
        asked = [p for p in self._signature.parameters.values() if p.name not in self.model.injected]
        self._arguments = self._signature.replace(parameters=asked)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        return self._function(*args, **kwargs)

    def __get__(self, instance: object, owner: type | None = None) -> FunctionJob[P, R_co]:
        return self

    def __repr__(self) -> str:
        return f"<job {self.model.options.name}>"

    @property
    def options(self) -> JobOptions:
        """The defaults that the decorator gave."""
        return self.model.options

    def bind(self, *args: P.args, **kwargs: P.kwargs) -> Job:
        """The job for a call with these arguments. Raises TypeError as the call would, SerializationError for a
        value of another type than its annotation."""
        call = self._arguments.bind(*args, **kwargs)
        call.apply_defaults()
        values = call.arguments
        try:
            job = self.model.model_validate(values)
        except ValidationError as error:
            raise SerializationError(f"{self.model.options.name}: {_first_problem(error)}") from error
        for name, sent in values.items():
            received = getattr(job, _PREFIX + name)
            if sent is not received and not same(sent, received):
                raise SerializationError(
                    f"{self.model.options.name}: {name}={shown(sent)} would arrive as {shown(received)}."
                )
        return job

    def _build_model(self) -> type[FunctionCall]:
        hints = _hints(self._function, self._names)
        fields: dict[str, Any] = {}
        injected = injected_names(self._function, hints)
        for parameter in self._signature.parameters.values():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
                raise InvalidJob(
                    f"{self._function.__qualname__}: a job's parameters have names; "
                    f"{str(parameter)!r} cannot travel. Use named parameters, or a Job class."
                )
            if parameter.name not in injected:
                default = ... if parameter.default is parameter.empty else parameter.default
                fields[_PREFIX + parameter.name] = (
                    hints.get(parameter.name, Any),
                    Field(default, alias=parameter.name),
                )
        model: type[FunctionCall] = create_model(
            self._function.__name__,
            __base__=FunctionCall,
            __module__=self._function.__module__,
            __doc__=self._function.__doc__,
            __cls_kwargs__={**self._options, "abstract": True},
            **fields,
        )
        model.__qualname__ = self._function.__qualname__
        model.function = staticmethod(self._function)
        model.injected = injected
        model.options = model.options.override({"abstract": False})
        registry.add(model)
        return model


def _hints(function: Callable[..., Any], names: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return get_type_hints(function, localns=dict(names), include_extras=True)
    except NameError as error:
        raise InvalidJob(
            f"{function.__qualname__}: an annotation cannot be resolved ({error}). "
            "Import the name at run time (not under TYPE_CHECKING), above the function."
        ) from error


def _first_problem(error: ValidationError) -> str:
    problem = error.errors(include_url=False)[0]
    where = ".".join(map(str, problem["loc"])) or "arguments"
    return f"{where}: {problem['msg']} (got {type(problem['input']).__name__})"


def injected_names(function: Callable[..., Any], hints: Mapping[str, Any]) -> frozenset[str]:
    """Parameters that the worker fills for callbacks: ``batch: BatchState``, and ``error`` beside it or typed as
    an exception."""
    parameters = inspect.signature(function).parameters
    names = {"batch"} if "batch" in parameters and hints.get("batch") is BatchState else set()
    kind = hints.get("error")
    is_exception = isinstance(kind, type) and issubclass(kind, BaseException)
    if "error" in parameters and (names or is_exception):
        names.add("error")
    return frozenset(names)


@overload
def job(function: Callable[P, R_co], /) -> FunctionJob[P, R_co]: ...
@overload
def job(**options: Any) -> Callable[[Callable[P, R_co]], FunctionJob[P, R_co]]: ...
def job(function: Callable[P, R_co] | None = None, /, **options: Any) -> Any:
    """Make a function a job: ``@job`` or ``@job(queue="reports", retries=5)``; see `JobOptions`.

    It stays callable and typed. The parameters' annotations are checked when it is dispatched; the name that
    travels is the function's, unless `name` says otherwise.
    """
    names = sys._getframe(1).f_locals

    def decorate(function: Callable[P, R_co]) -> FunctionJob[P, R_co]:
        if not inspect.isfunction(function):
            raise InvalidJob(f"@job takes a function, not {function!r}.")
        if function.__name__ == "<lambda>":
            raise InvalidJob("a lambda has no name to travel under: make it a function with def.")
        return FunctionJob(function, options, names)

    return decorate if function is None else decorate(function)


# --- what the worker asks of a job's class -------------------------------------------------------------------


@functools.cache
def is_async(model: type[Job]) -> bool:
    """`handle` is a coroutine function."""
    function = model.function if issubclass(model, FunctionCall) else model.handle
    return inspect.iscoroutinefunction(function)


@functools.cache
def callback_parameters(model: type[Job]) -> frozenset[str]:
    """Which of `batch` and `error` the handler takes."""
    if issubclass(model, FunctionCall):
        return model.injected
    return frozenset({"batch", "error"} & set(inspect.signature(model.handle).parameters))


@functools.cache
def result_adapter(model: type[Job]) -> TypeAdapter[Any]:
    """How the handler's return value is encoded and decoded."""
    function = model.function if issubclass(model, FunctionCall) else model.handle
    try:
        kind = get_type_hints(function, include_extras=True).get("return", Any)
    except NameError:
        kind = Any
    config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64", ser_json_inf_nan="strings")
    try:
        return TypeAdapter(Any if kind is None else kind, config=config)
    except PydanticUserError:  # a model, a dataclass, a TypedDict: it has a configuration of its own
        return TypeAdapter(kind)


@functools.cache
def result_decoder(model: type[Job]) -> Callable[[bytes], Any]:
    """Reads an encoded return value."""
    return result_adapter(model).validate_json
