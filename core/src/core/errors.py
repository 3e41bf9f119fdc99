"""Every exception that this package raises on purpose.

    CoreError
    ├── ConfigError            a setting is wrong, unknown or contradicts another
    ├── PluginError            a plugin is missing, broken, ambiguous or of another API version
    │   └── SelectionError     no plugin can do what is asked; carries every reason
    ├── ModelError             the model's files are missing, incomplete or of an unknown architecture
    ├── RequestError           one request cannot be served; nobody else's is touched
    │   ├── InvalidRequest     it is malformed or can never be served (HTTP 400)
    │   └── Overloaded         it could be served later (HTTP 503)
    └── EngineDead             the engine stopped; open requests are lost

A message says what was got, what was expected and what to do, and names the distribution at fault.
"""

from __future__ import annotations


class CoreError(Exception):
    """Base of every exception that this package raises on purpose."""


class ConfigError(CoreError):
    """A setting is wrong, unknown or contradicts another."""


class PluginError(CoreError):
    """A plugin is missing, broken, ambiguous or of another API version."""


class SelectionError(PluginError):
    """No plugin can do what is asked. The message holds the table of reasons."""


class ModelError(CoreError):
    """The model's files are missing, incomplete or of an unknown architecture."""


class RequestError(CoreError):
    """One request cannot be served.

    `param` names the request's field at fault, as the client spelled it, or is None.
    """

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


class InvalidRequest(RequestError):
    """The request is malformed or can never be served."""


class Overloaded(RequestError):
    """The request could be served later: too many are waiting."""


class EngineDead(CoreError):
    """The engine stopped; open requests are lost."""
