"""A Kubernetes API server for tests.

``start()`` runs the server of this package as a child process, on a free port and in memory. The child ends with this process.
"""

from ._server import Fork, KeelsonError, Server, StartError, find_binary, start

__all__ = ["Fork", "KeelsonError", "Server", "StartError", "find_binary", "start"]
__version__ = "0.1.0"
