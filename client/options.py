"""A command's options are one frozen dataclass: parsed once by typer, passed on as one value.

@command(app, "report", ReportOptions)
def report(options: ReportOptions, output: Output) -> GateExit: ...
"""

import dataclasses
import inspect
import re
import shlex
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar, get_type_hints

import typer
from pydantic import TypeAdapter, ValidationError

from client.api import DynofarmClient
from client.errors import ClientError, InfrastructureError, UsageError
from client.farm_home import FarmHome
from client.output import Output
from client.refusals import client_error_of
from client.settings import read_settings
from contract.home import DEFAULT_URL
from contract.ids import RunId
from contract.states import GateExit
from rest.address import Address
from rest.errors import ControllerUnreachableError, SettingError
from rest.transport import Caller, Waits
from rest.tries import Patience

INTERRUPTED_EXIT = 130
# As a shell reports a process that SIGPIPE ended: the reader of our output left.
_READER_LEFT_EXIT = 141
_FIRST_CLAUSE: Final = re.compile(r"[.:;](?:\s|$)")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class JsonOption:
    """For commands that speak to nobody."""

    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object or list on standard output; the rest on stderr.")
    ] = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HomeOptions(JsonOption):
    """For commands of a farm on this machine."""

    home: Annotated[
        Path | None,
        typer.Option("--home", help="Folder of the farm on this machine [DYNOFARM_HOME, ~/.dynofarm]."),
    ] = None

    def farm_home(self) -> FarmHome:
        """The folder that the option, or else the environment, names."""
        return FarmHome((self.home or read_settings().home).expanduser().absolute())


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ControllerOptions(HomeOptions):
    """For commands that ask a controller. The token comes from DYNOFARM_TOKEN or the home folder."""

    controller: Annotated[
        str,
        typer.Option(
            "--controller",
            metavar="URL",
            help="Address of the controller [DYNOFARM_CONTROLLER, or the farm in the home folder].",
        ),
    ] = ""

    def client(
        self, patience: Patience | None = None, on_wait: Waits = lambda error, wait_s: None
    ) -> DynofarmClient:
        """A client for the chosen controller; UsageError for a bad address.

        on_wait is told of each failure that is waited out.
        """
        settings = read_settings()
        home = self.farm_home()
        own = home.controller()
        try:
            address = Address.of(self.controller or settings.controller or (own.url if own else DEFAULT_URL))
        except SettingError as error:
            raise client_error_of(error) from error
        is_given = bool(settings.token.get_secret_value())
        caller = Caller(
            patience=patience or Patience(),
            ca_file=settings.ca_file,
            must_prove_token=not is_given,
            on_wait=on_wait,
        )
        token = settings.token if is_given else home.token_for(address)
        return DynofarmClient(address.url, token, caller)

    def explained(self, error: ClientError) -> ClientError:
        """An error of nobody answering names the home, where that and no address was given."""
        if error.code != ControllerUnreachableError.code or self.controller or read_settings().controller:
            return error
        home = self.farm_home().path
        return InfrastructureError(
            error.code,
            f"{error.detail}; asked for the farm of the home {home}",
            f"start it with `dynofarm up --home {shlex.quote(str(home))}`, name another home with --home or "
            "DYNOFARM_HOME (`make demo` has .dynofarm), or give an address with --controller",
        )

    @property
    def same_farm(self) -> str:
        """What to add to another command so that it asks the same controller."""
        home = f" --home {shlex.quote(str(self.home))}" if self.home else ""
        return home + (f" --controller {shlex.quote(self.controller)}" if self.controller else "")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions(ControllerOptions):
    """For commands about one run."""

    run_id: Annotated[str, typer.Argument(metavar="RUN", help="Id of the run.")]

    def __post_init__(self) -> None:
        """UsageError for what cannot be a run."""
        check_run_id(self.run_id)


_RUN_ID: Final[TypeAdapter[str]] = TypeAdapter(RunId)


def check_run_id(text: str) -> None:
    """Return for the id of a run; UsageError for anything else, before anybody is asked."""
    try:
        _RUN_ID.validate_python(text)
    except ValidationError as error:
        raise UsageError(
            "bad-run-id", f"{text!r} is not the id of a run", "`dynofarm runs` lists the runs"
        ) from error


OptionsT = TypeVar("OptionsT", bound=JsonOption)
CommandFunction = Callable[[OptionsT, Output], int]


def command(
    app: typer.Typer, name: str, options_type: type[OptionsT], function: CommandFunction[OptionsT]
) -> None:
    """Registers `function` under `name`: it returns the exit code, and its docstring is the help text."""

    def run(**given: Any) -> None:
        raise typer.Exit(_exit_code(function, options_type, given))

    _take_options(run, options_type)
    help_text = inspect.getdoc(function) or ""
    app.command(name, help=help_text, short_help=_FIRST_CLAUSE.split(help_text)[0])(run)


def default_command(
    app: typer.Typer, options_type: type[OptionsT], function: CommandFunction[OptionsT]
) -> None:
    """Registers what a group does when it is called without one of its commands."""

    def run(context: typer.Context, **given: Any) -> None:
        if context.invoked_subcommand is None:
            raise typer.Exit(_exit_code(function, options_type, given))
        if options_type(**given) != options_type():
            # They would be dropped without a word, and the command would ask another controller.
            misplaced = f"write the options after `{context.invoked_subcommand}`, not before it"
            Output(as_json=given["as_json"]).failure(UsageError("bad-option", misplaced))
            raise typer.Exit(int(GateExit.USAGE))

    _take_options(run, options_type, context=typer.Context)
    app.callback(invoke_without_command=True, no_args_is_help=False)(run)


def _take_options(run: Callable[..., None], options_type: type[OptionsT], **first: type) -> None:
    """Gives `run` the signature that typer reads: the dataclass's fields as keyword arguments."""
    hints = get_type_hints(options_type, include_extras=True)
    fields = dataclasses.fields(options_type)
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter(name, keyword, annotation=kind) for name, kind in first.items()] + [
        inspect.Parameter(field.name, keyword, default=_default(field), annotation=hints[field.name])
        for field in fields
    ]
    run.__annotations__ = {**first, **{field.name: hints[field.name] for field in fields}}
    vars(run)["__signature__"] = inspect.Signature(parameters)


def _default(field: "dataclasses.Field[Any]") -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default


def _exit_code(
    function: CommandFunction[OptionsT], options_type: type[OptionsT], given: dict[str, Any]
) -> int:
    """Runs the command; exit code 1 must mean a regression, so no failure of ours may end with it."""
    output = Output(as_json=given["as_json"])
    try:
        options = options_type(**given)
        try:
            return int(function(options, output))
        except ClientError as error:
            if isinstance(options, ControllerOptions):
                raise options.explained(error) from error
            raise
    except ClientError as error:
        output.failure(error)
        return int(error.exit_code)
    except KeyboardInterrupt:
        return INTERRUPTED_EXIT
    except BrokenPipeError:
        output.reader_left()
        return _READER_LEFT_EXIT
    except Exception as error:
        output.say(traceback.format_exc())
        output.failure(
            InfrastructureError(
                "client-bug",
                f"{type(error).__name__}: {error}",
                "this is a bug of dynofarm; please report it",
            )
        )
        return int(GateExit.INFRASTRUCTURE)
