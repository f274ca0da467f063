"""The server as a child process of Python."""

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
