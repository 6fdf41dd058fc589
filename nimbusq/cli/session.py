"""What every command shares: loading the application, opening its manager, telling people what went wrong."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, NoReturn, TypeVar

import typer

from nimbusq.cli import exits

T = TypeVar("T")

AppOption = Annotated[
    str | None,
    typer.Option(
        "--app", "-A", envvar="NIMBUSQ_APP", help="Module with your jobs: pkg.mod, pkg.mod:attr or file.py."
    ),
]
UrlOption = Annotated[
    str | None,
    typer.Option("--url", envvar="QUEUE_DRIVER", help="A driver's name or URL, e.g. sqlite:///jobs.db."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def fail(code: int, message: str) -> NoReturn:
    """Say what went wrong on stderr and end with this code."""
    typer.secho(f"nimbusq: {message}", err=True, fg=typer.colors.RED)
    raise typer.Exit(code)


def run(main: Callable[[], Awaitable[T]]) -> T:
    """Run a command's coroutine; nimbusq's own errors become a message and an exit code."""
    from nimbusq import errors

    async def guarded() -> T:
        return await main()

    try:
        result: T = _runner()(guarded())
    except (errors.InvalidName, errors.InvalidOption) as error:
        fail(exits.USAGE, str(error))
    except errors.SchemaMismatch as error:
        fail(exits.SCHEMA, str(error))
    except errors.ConfigError as error:
        fail(exits.CONFIG, str(error))
    except errors.StoreError as error:
        fail(exits.UNREACHABLE, str(error))
    except (errors.JobNotFound, errors.BatchNotFound) as error:
        fail(exits.NOT_FOUND, str(error))
    except errors.NimbusqError as error:
        fail(exits.FAILED, str(error))
    return result


def _runner() -> Callable[[Any], Any]:
    try:
        import uvloop
    except ImportError:
        return asyncio.run
    return uvloop.run


async def open_manager(app: str | None, url: str | None, *, connect: bool = True) -> Any:
    """Import the application, build its manager (its own, or one from the environment) and make it the default."""
    from nimbusq.config import Settings
    from nimbusq.manager import Manager, boot, set_default

    target = load_app(app) if app else None
    settings = target if isinstance(target, Settings) else Settings(**({"driver": url} if url else {}))
    manager = target if isinstance(target, Manager) and not url else Manager(settings=settings)
    if connect:
        return await boot(settings, manager=manager)
    set_default(manager)
    return manager


def load_app(target: str) -> object:
    """Import ``pkg.mod``, ``pkg.mod:attr`` or ``path/file.py[:attr]``; the attribute (a Manager, Settings, or a
    function that returns one), or else the module. The current folder is importable."""
    from nimbusq.errors import ConfigError

    name, _, attribute = target.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = _import_file(Path(name)) if name.endswith(".py") else importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"the app {target!r} cannot be imported: {error}. It is looked for from {here}; "
            "use pkg.module, pkg.module:attribute or path/to/file.py."
        ) from error
    if not attribute:
        return module
    if not hasattr(module, attribute):
        raise ConfigError(f"the app {target!r} cannot be loaded: {name} has no {attribute!r}.")
    found = getattr(module, attribute)
    return found() if inspect.isfunction(found) else found


def _import_file(path: Path) -> ModuleType:
    from nimbusq.errors import ConfigError

    path = path.resolve()
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise ConfigError(f"the app {path} is not a file.")
    if path.stem in sys.modules and getattr(sys.modules[path.stem], "__file__", None) == str(path):
        return sys.modules[path.stem]
    sys.path.insert(0, str(path.parent))
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def confirm(question: str, yes: bool) -> None:
    """Ask before something is destroyed; without a terminal, refuse and name --yes."""
    if yes:
        return
    if not sys.stdin.isatty():
        fail(exits.REFUSED, f"{question} There is no terminal to ask on: add --yes.")
    if not typer.confirm(question):
        raise typer.Exit(exits.REFUSED)
