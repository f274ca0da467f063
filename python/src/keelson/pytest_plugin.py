"""The pytest plugin: a server for the session, and a namespace, a fork or a server for each test."""

from __future__ import annotations

import re
import shlex
import uuid
from pathlib import Path
from typing import Any, Iterator, Union

import pytest

from ._server import Fork, KeelsonError, Server, start


class TestKeelson:
    """A server, as one test sees it."""

    __test__ = False

    def __init__(self, server: Union[Server, Fork], namespace: str) -> None:
        self.server = server
        #: The namespace of the test.
        self.namespace = namespace

    def __getattr__(self, name: str) -> Any:
        return getattr(self.server, name)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("keelson")
    group.addoption("--keelson-args", default="", help="more flags of keelson serve, for the server of the session")
    parser.addini("keelson_args", "more flags of keelson serve, for the server of the session", default="")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "keelson(fresh=False, args=(), fork=False): fresh gives the test a server of its own, args are more flags of "
        "keelson serve for it, fork gives it a fork of the fixture keelson_prepared",
    )


@pytest.fixture(scope="session")
def keelson_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server for all tests of the session, in memory."""
    config = request.config
    args = shlex.split(config.getini("keelson_args")) + shlex.split(config.getoption("--keelson-args"))
    with start(args) as server:
        yield server


@pytest.fixture(scope="session")
def keelson_prepared(keelson_server: Server) -> Server:
    """The origin of forks. Override it to install definitions and fixtures once."""
    return keelson_server


@pytest.fixture
def keelson_fork(keelson_prepared: Server) -> Iterator[Fork]:
    """A fresh server for the test, with the objects of ``keelson_prepared``."""
    with keelson_prepared.fork() as fork:
        yield fork


@pytest.fixture
def keelson(request: pytest.FixtureRequest) -> Iterator[TestKeelson]:
    """The server with a namespace of the test's own, or a server or a fork of its own."""
    mark = request.node.get_closest_marker("keelson")
    settings = mark.kwargs if mark else {}
    if settings.get("fork"):
        yield _with_namespace(request.getfixturevalue("keelson_fork"), request.node.name)
        return
    if settings.get("fresh") or settings.get("args"):
        with start(settings.get("args", ())) as server:
            yield _with_namespace(server, request.node.name)
        return
    server = request.getfixturevalue("keelson_server")
    test = _with_namespace(server, request.node.name)
    yield test
    try:
        server.delete(f"/api/v1/namespaces/{test.namespace}")
    except KeelsonError as error:
        # The test has deleted it.
        if error.status not in (404, 409):
            raise


@pytest.fixture
def keelson_kubeconfig(keelson: TestKeelson, tmp_path: Path) -> Path:
    """The path of a kubeconfig for the namespace of the test."""
    path = tmp_path / "keelson.kubeconfig"
    path.touch(mode=0o600)
    path.write_text(keelson.kubeconfig_for(keelson.namespace))
    return path


@pytest.fixture
def keelson_client(keelson_kubeconfig: Path) -> Iterator[Any]:
    """An ApiClient of the official client, or the API of kr8s where only that is installed."""
    try:
        from kubernetes import config as kubernetes_config
    except ImportError:
        kr8s = pytest.importorskip("kr8s", reason="neither kubernetes nor kr8s is installed")
        yield kr8s.api(kubeconfig=str(keelson_kubeconfig))
        return
    client = kubernetes_config.new_client_from_config(config_file=str(keelson_kubeconfig))
    with client:
        yield client


def _with_namespace(server: Union[Server, Fork], test: str) -> TestKeelson:
    words = re.sub(r"[^a-z0-9]+", "-", test.lower()).strip("-")[:40].strip("-")
    name = f"{words or 'test'}-{uuid.uuid4().hex[:8]}"
    server.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return TestKeelson(server, name)
