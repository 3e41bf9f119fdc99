"""Taking the port, before anything slow is done."""

from __future__ import annotations

import errno
import socket

from core.errors import ConfigError

BACKLOG = 2048
_REASONS = {
    errno.EADDRINUSE: "another process listens on it; stop that one, or choose another port with --port (0: any)",
    errno.EACCES: "this user may not listen on it; choose a port above 1023 with --port",
    errno.EADDRNOTAVAIL: "this machine does not have the address; choose another one with --host",
}


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens, so that the port is held from now on. Connections wait until somebody accepts them.

    Raises:
        ConfigError: the port is taken, or the address is not one of this machine's.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        reason = _REASONS.get(error.errno or 0, error.strerror or str(error))
        raise ConfigError(f"Cannot listen on {host} port {port}: {reason}") from None


def url_of(listener: socket.socket) -> str:
    """The address under which clients on this machine reach `listener`."""
    host, port = listener.getsockname()[:2]
    shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{shown}]:{port}" if ":" in shown else f"http://{shown}:{port}"
