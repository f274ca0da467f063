"""The server as a child process, and requests to it with the standard library alone."""

from __future__ import annotations

import base64
import http.client
import json
import os
import re
import select
import shutil
import socket
import ssl
import subprocess
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import Any, Iterable, Mapping, Optional, TypeVar
from urllib.parse import urlsplit

#: The variable that names the binary.
BINARY_VARIABLE = "KEELSON_BIN"
#: The longest time for a start, in seconds.
START_TIMEOUT = 30.0
#: The longest time for a stop before the server is killed, in seconds.
STOP_TIMEOUT = 15.0
#: The longest time for an answer, in seconds.
REQUEST_TIMEOUT = 30.0
#: The part of the log that an error shows, in characters.
LOG_SHOWN = 4000


class KeelsonError(Exception):
    """An answer of the server that is not a success."""

    def __init__(self, status: int, body: Any) -> None:
        message = body.get("message", "") if isinstance(body, dict) else str(body)
        super().__init__(f"{status}: {message}")
        self.status = status
        self.body = body


class StartError(Exception):
    """The server did not start."""


def find_binary() -> str:
    """Returns the path of the server: ``KEELSON_BIN``, the binary of this package, or the one on the path.

    Raises:
        StartError: There is none.
    """
    named = os.environ.get(BINARY_VARIABLE)
    if named:
        return named
    installed = Path(sysconfig.get_path("scripts")) / "keelson"
    if installed.exists():
        return str(installed)
    found = shutil.which("keelson")
    if found is None:
        raise StartError(f"there is no keelson binary: install the wheel for this platform, or set {BINARY_VARIABLE}")
    return found


_Self = TypeVar("_Self", bound="_Api")


class _Api:
    """Requests to a server or a fork."""

    def __init__(self, line: Mapping[str, Any], tls: ssl.SSLContext) -> None:
        #: The URL, such as ``https://127.0.0.1:41234``.
        self.url: str = line["url"]
        #: The path of the administrator's kubeconfig.
        self.kubeconfig: str = line["kubeconfig"]
        self.pid: int = line["pid"]
        self.version: str = line["version"]
        self._tls = tls

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        content_type: str = "application/json",
    ) -> Any:
        """Sends a request as the administrator and returns the JSON of the answer.

        Raises:
            KeelsonError: The answer is not a success.
        """
        parts = urlsplit(self.url)
        connection = http.client.HTTPSConnection(
            parts.hostname or "", parts.port, timeout=REQUEST_TIMEOUT, context=self._tls
        )
        try:
            data = None if body is None else json.dumps(body)
            connection.request(method, path, data, {"content-type": content_type, "accept": "application/json"})
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        is_json = (answer.getheader("content-type") or "").startswith("application/json")
        value = json.loads(text) if is_json else text
        if answer.status >= 300:
            raise KeelsonError(answer.status, value)
        return value

    def get(self, path: str) -> Any:
        """The JSON at a path."""
        return self.request("GET", path)

    def create(self, path: str, body: Mapping[str, Any]) -> Any:
        """Creates an object in the collection at a path."""
        return self.request("POST", path, body)

    def delete(self, path: str) -> Any:
        """Deletes the object at a path."""
        return self.request("DELETE", path)

    def kubeconfig_for(self, namespace: str) -> str:
        """The text of a kubeconfig whose context has a namespace."""
        text = Path(self.kubeconfig).read_text()
        return re.sub(r"(?m)^(\s+)(user: .*)$", rf"\1\2\n\1namespace: {namespace}", text, count=1)

    def stop(self) -> None:
        """Stops the server and waits for its end."""
        raise NotImplementedError

    def fork(self, *, timeout: float = START_TIMEOUT) -> "Fork":
        """Starts a fresh server with the objects of this one, in the same process and on its own port.

        Neither sees later writes of the other. Users and tokens of this server are valid there.

        Raises:
            StartError: The limit of forks is reached, or the fork did not start.
        """
        raise NotImplementedError


class Server(_Api):
    """A running server. It stops when the ``with`` block ends."""

    def __init__(self, process: "subprocess.Popen[bytes]", line: Mapping[str, Any], log: Any) -> None:
        super().__init__(line, _tls(Path(line["kubeconfig"]).read_text()))
        self._process = process
        self._log = log
        self._fork_socket: Optional[str] = line.get("forkSocket")

    @property
    def log(self) -> str:
        """What the server has logged so far."""
        return _read(self._log)

    def fork(self, *, timeout: float = START_TIMEOUT) -> "Fork":
        return _fork(self._fork_socket, {}, self._tls, timeout)

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_TIMEOUT)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._log.close()


class Fork(_Api):
    """A fork of a server. It stops when the ``with`` block ends, and at the latest with this process."""

    def __init__(self, line: Mapping[str, Any], tls: ssl.SSLContext, connection: socket.socket, path: str) -> None:
        super().__init__(line, tls)
        self._name: str = line["fork"]
        self._connection = connection
        self._fork_socket = path

    def fork(self, *, timeout: float = START_TIMEOUT) -> "Fork":
        return _fork(self._fork_socket, {"of": self._name}, self._tls, timeout)

    def stop(self) -> None:
        try:
            self._connection.shutdown(socket.SHUT_WR)
            self._connection.settimeout(STOP_TIMEOUT)
            # The server closes the connection when the fork has ended.
            while self._connection.recv(4096):
                pass
        except OSError:
            # The server has ended, and its forks with it.
            pass
        finally:
            self._connection.close()


def _fork(path: Optional[str], request: Mapping[str, str], tls: ssl.SSLContext, timeout: float) -> Fork:
    """Asks the server at a socket for a fork. The fork lives as long as the connection."""
    if path is None:
        raise StartError("this server has no forks; its log has the reason")
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(timeout)
        connection.connect(path)
        connection.sendall(json.dumps(request).encode() + b"\n")
        text = b""
        while not text.endswith(b"\n"):
            chunk = connection.recv(65536)
            if not chunk:
                raise StartError("the server has ended")
            text += chunk
        line = json.loads(text)
        if "error" in line:
            raise StartError(line["error"])
        return Fork(line, tls, connection, path)
    except OSError as error:
        connection.close()
        raise StartError(f"the fork did not start: {error}") from error
    except StartError:
        connection.close()
        raise


def start(
    args: Iterable[str] = (),
    *,
    binary: Optional[str] = None,
    env: Optional[Mapping[str, str]] = None,
    timeout: float = START_TIMEOUT,
) -> Server:
    """Starts a server in memory and waits until it is ready.

    Args:
        args: More flags of ``keelson serve``.
        binary: The path of the server; ``find_binary()`` unless given.
        env: Its environment; that of this process without ``KEELSON_*`` unless given.
        timeout: The longest time for the start, in seconds.

    Raises:
        StartError: It did not start; the message ends with its log.
    """
    if env is None:
        env = {name: value for name, value in os.environ.items() if not name.startswith("KEELSON_")}
    command = [binary or find_binary(), "serve", "--ephemeral", "--bind", "127.0.0.1:0", "--output", "json"]
    command += [f"--exit-with-parent={os.getpid()}", *args]
    log = tempfile.TemporaryFile()
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, env=dict(env)
        )
    except OSError as error:
        log.close()
        raise StartError(f"{command[0]} can't be run: {error}") from error
    line = _first_line(process, timeout)
    if not line:
        if process.poll() is None:
            process.kill()
        code = process.wait()
        text = _read(log)[-LOG_SHOWN:]
        log.close()
        raise StartError(f"the server did not start (exit code {code}); its log:\n{text}")
    return Server(process, json.loads(line), log)


def _first_line(process: "subprocess.Popen[bytes]", timeout: float) -> bytes:
    """The first line of standard output; nothing where it does not come in time."""
    assert process.stdout is not None
    descriptor, deadline, line = process.stdout.fileno(), time.monotonic() + timeout, b""
    while not line.endswith(b"\n"):
        ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return b""
        chunk = os.read(descriptor, 65536)
        if not chunk:
            return b""
        line += chunk
    return line


def _read(log: Any) -> str:
    log.seek(0)
    return log.read().decode(errors="replace")


def _tls(kubeconfig: str) -> ssl.SSLContext:
    """The settings of connections, by a kubeconfig with embedded certificates."""

    def field(name: str) -> str:
        found = re.search(rf"(?m)^\s+{name}: (\S+)$", kubeconfig)
        if found is None:
            raise StartError(f"the kubeconfig has no {name}")
        return base64.b64decode(found[1]).decode()

    context = ssl.create_default_context(cadata=field("certificate-authority-data"))
    # The standard library reads client certificates from files alone.
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as pair:
        pair.write(field("client-certificate-data") + "\n" + field("client-key-data"))
        pair.flush()
        context.load_cert_chain(pair.name)
    return context
