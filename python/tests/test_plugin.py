"""The fixtures of the pytest plugin, as tests use them."""

import pytest

pytest_plugins = ["pytester"]


def config_map(name):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}


@pytest.mark.parametrize("round", [1, 2])
def test_each_test_has_a_namespace_of_its_own(keelson, round):
    path = f"/api/v1/namespaces/{keelson.namespace}/configmaps"
    names = [it["metadata"]["name"] for it in keelson.get(path)["items"]]
    assert "mine" not in names
    keelson.create(path, config_map("mine"))


def test_the_session_has_one_server(keelson, keelson_server):
    assert keelson.url == keelson_server.url


@pytest.mark.keelson(args=["--controllers="])
def test_a_mark_gives_a_server_of_its_own(keelson, keelson_server):
    assert keelson.url != keelson_server.url
    keelson.delete(f"/api/v1/namespaces/{keelson.namespace}")
    # No controller empties it.
    assert keelson.get(f"/api/v1/namespaces/{keelson.namespace}")["status"]["phase"] == "Terminating"


@pytest.fixture(scope="session")
def keelson_prepared(keelson_server):
    keelson_server.create("/api/v1/namespaces/default/configmaps", config_map("fixture"))
    return keelson_server


@pytest.mark.parametrize("round", [1, 2])
def test_each_test_has_a_fork_of_its_own(keelson_fork, keelson_prepared, round):
    path = "/api/v1/namespaces/default/configmaps"
    assert keelson_fork.url != keelson_prepared.url
    keelson_fork.delete(f"{path}/fixture")
    assert keelson_prepared.get(f"{path}/fixture")["metadata"]["name"] == "fixture"


@pytest.mark.keelson(fork=True)
def test_a_mark_gives_a_fork(keelson, keelson_server, keelson_kubeconfig):
    assert keelson.url != keelson_server.url
    assert keelson.url in keelson_kubeconfig.read_text()
    assert keelson.get("/api/v1/namespaces/default/configmaps/fixture")


def test_the_kubeconfig_names_the_namespace(keelson, keelson_kubeconfig):
    assert f"    namespace: {keelson.namespace}\n" in keelson_kubeconfig.read_text()
    assert keelson_kubeconfig.stat().st_mode & 0o077 == 0


def test_the_official_client_works(keelson, keelson_client):
    kubernetes = pytest.importorskip("kubernetes")
    core = kubernetes.client.CoreV1Api(keelson_client)
    core.create_namespaced_config_map(keelson.namespace, config_map("by-client"))
    names = [it.metadata.name for it in core.list_namespaced_config_map(keelson.namespace).items]
    assert "by-client" in names


def test_flags_of_the_session_come_from_the_ini_file(pytester):
    pytester.makeini("[pytest]\nkeelson_args = --nosuch-flag")
    pytester.makepyfile("def test_it(keelson): pass")
    result = pytester.runpytest("-p", "keelson.pytest_plugin")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*nosuch-flag*"])
