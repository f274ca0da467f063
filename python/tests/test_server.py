"""The server as a child process of Python."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

import keelson

PATIENCE = 30


def runs(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_a_server_answers_and_leaves_nothing_behind():
    with keelson.start() as server:
        names = [it["metadata"]["name"] for it in server.get("/api/v1/namespaces")["items"]]
        assert "default" in names
        assert server.get("/readyz") == "ok"
        with pytest.raises(keelson.KeelsonError) as refused:
            server.get("/api/v1/namespaces/nosuch")
        assert refused.value.status == 404
        kubeconfig, pid = server.kubeconfig, server.pid
    assert not os.path.exists(kubeconfig)
    assert not runs(pid)


def test_servers_run_side_by_side():
    with keelson.start() as one, keelson.start() as other:
        assert one.url != other.url
        one.create("/api/v1/namespaces", {"metadata": {"name": "only-here"}})
        with pytest.raises(keelson.KeelsonError):
            other.get("/api/v1/namespaces/only-here")


def test_forks_begin_with_the_objects_of_their_origin_and_see_no_later_writes():
    path = "/api/v1/namespaces/default/configmaps"

    def names(server):
        return {it["metadata"]["name"] for it in server.get(path)["items"]} - {"kube-root-ca.crt"}

    def create(server, name):
        server.create(path, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})

    with keelson.start() as server:
        create(server, "fixture")
        with server.fork() as fork, server.fork() as other:
            create(fork, "here")
            create(server, "there")
            assert (names(server), names(fork), names(other)) == ({"fixture", "there"}, {"fixture", "here"}, {"fixture"})
            with fork.fork() as grandchild:
                assert names(grandchild) == {"fixture", "here"}
                kubeconfig = grandchild.kubeconfig
            assert not os.path.exists(kubeconfig)
            fork.stop()
            with pytest.raises(OSError):
                fork.get(path)
            assert names(other) == {"fixture"}
        kept = server.fork()
    with pytest.raises(OSError):
        kept.get(path)
    kept.stop()


def test_the_number_of_forks_is_limited():
    with keelson.start(["--max-forks=1"]) as server:
        with server.fork():
            with pytest.raises(keelson.StartError, match="--max-forks"):
                server.fork()
        server.fork().stop()
    with keelson.start(["--max-forks=0"]) as server, pytest.raises(keelson.StartError, match="has no forks"):
        server.fork()


def test_a_fork_ends_with_the_process_that_asked_for_it():
    with keelson.start() as server:
        code = (
            "import json, socket, sys, time; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); "
            "s.sendall(b'{}\\n'); print(s.recv(65536).decode(), end='', flush=True); time.sleep(600)"
        )
        child = subprocess.Popen([sys.executable, "-c", code, server._fork_socket], stdout=subprocess.PIPE, text=True)
        kubeconfig = json.loads(child.stdout.readline())["kubeconfig"]
        assert os.path.exists(kubeconfig)
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        deadline = time.monotonic() + PATIENCE
        while os.path.exists(kubeconfig):
            assert time.monotonic() < deadline, "it outlives its owner"
            time.sleep(0.02)


def test_a_start_that_fails_shows_the_log():
    with pytest.raises(keelson.StartError, match="nosuch-flag"):
        keelson.start(["--nosuch-flag"])
    with pytest.raises(keelson.StartError, match="can't be run"):
        keelson.start(binary="/nonexistent/keelson")


def test_a_server_ends_with_the_python_that_started_it():
    code = "import keelson, time; print(keelson.start().pid, flush=True); time.sleep(600)"
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    pid = int(parent.stdout.readline())
    assert runs(pid)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + PATIENCE
    while runs(pid):
        assert time.monotonic() < deadline, "it outlives its parent"
        time.sleep(0.02)
