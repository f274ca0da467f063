"""Takes releases of the chart through a step of their life, with the library of Helm."""

import sys

from helm_python import chart
from helm_python.config import Config
from helm_python.errors import HelmError

NAMESPACE = "keelson"
THREE = {
    "replicas": 3,
    "store": {"secretName": "keelson-store"},
    "keys": {"secretName": "keelson-keys"},
    "serviceMonitor": {"enabled": True, "tokenSecretName": "keelson-metrics"},
    "tlsNames": ["api.example.org"],
}


def lint(path):
    for values in ({}, THREE):
        report = chart.lint(path, values, strict=True)
        serious = [message for message in report["messages"] if message["severity"] > 1]
        if report["errors"] or serious:
            sys.exit(f"lint: {report}")
    loaded = chart.Chart.load(path)
    for wrong in ({"replicas": 0}, {"replica": 3}, {"replicas": 3}, {"keys": {"secretName": "k"}}, {"env": {"A": 1}}):
        try:
            loaded.validate_schema(wrong)
            loaded.render(wrong)
        except HelmError:
            continue
        sys.exit(f"these values are taken: {wrong}")


path, kubeconfig, step = sys.argv[1:]
config = Config(kubeconfig_path=kubeconfig, namespace=NAMESPACE)
match step:
    case "install":
        lint(path)
        config.install(path, "single", namespace=NAMESPACE)
    case "upgrade":
        config.upgrade(path, "single", {"env": {"KEELSON_HISTORY": "10m"}}, namespace=NAMESPACE)
    case "rollback":
        config.rollback("single", version=1)
    case "install-three":
        config.install(path, "three", THREE, namespace=NAMESPACE)
    case "uninstall":
        config.uninstall("single")
        config.uninstall("three")
