"""What can go wrong around an engine, as one line for people with a stable code and the next step.

Errors:

    EngineError
    ├── InstallError        an engine environment could not be made
    ├── ModelBuildError     a small model that needs no hub could not be made
    ├── SpecError           an engine was asked for with something that is not allowed
    └── WeightsError        weights could not be fetched
"""


class EngineError(Exception):
    """A fault the user meets: a stable `code`, one line of cause, the next step."""

    def __init__(self, code: str, message: str, next_step: str) -> None:
        super().__init__(f"{message}; {next_step}")
        self.code = code
        self.message = message
        self.next_step = next_step


class InstallError(EngineError):
    """An engine environment could not be made."""


class ModelBuildError(EngineError):
    """A small model that needs no hub could not be made."""


class SpecError(EngineError):
    """An engine was asked for with something that is not allowed."""


class WeightsError(EngineError):
    """Weights could not be fetched."""
