"""An operator in kopf, with an admission server of its own that kopf registers.

What it does it tells in the objects alone, since that is where the test looks.
"""

import os

import kopf

NAME = os.environ["OPERATOR_NAME"]
WIDGETS = ("operators.example.com", "v1", "widgets")


@kopf.on.startup()
def configure(settings, **_):
    files = os.environ["OPERATOR_FILES"]
    settings.admission.server = kopf.WebhookServer(
        addr="127.0.0.1",
        host="127.0.0.1",
        cafile=f"{files}/ca.pem",
        certfile=f"{files}/cert.pem",
        pkeyfile=f"{files}/key.pem",
    )
    settings.admission.managed = "operators.example.com"
    settings.persistence.finalizer = "operators.example.com/kopf"
    settings.peering.lifetime = 5


@kopf.on.mutate(*WIDGETS, operations=["CREATE", "UPDATE"])
def fill(spec, patch, **_):
    if "color" not in spec:
        patch.spec["color"] = "green"


@kopf.on.validate(*WIDGETS, operations=["CREATE", "UPDATE"])
def judge(spec, warnings, **_):
    size = spec.get("size", 0)
    if size > 10:
        raise kopf.AdmissionError(f"size {size} is too large", code=422)
    if size == 10:
        warnings.append("as large as can be")


@kopf.on.create(*WIDGETS)
def made(body, spec, **_):
    kopf.info(body, reason="Made", message=f"of {spec['color']}")
    return {"by": NAME, "color": spec["color"]}


@kopf.on.update(*WIDGETS, field="spec.size")
def grown(old, new, **_):
    return {"by": NAME, "old": old, "new": new}


@kopf.on.resume(*WIDGETS)
def seen(**_):
    return {"by": NAME}


@kopf.timer(*WIDGETS, interval=1)
def tick(status, **_):
    return {"count": status.get("tick", {}).get("count", 0) + 1}


@kopf.on.delete(*WIDGETS)
def gone(body, **_):
    kopf.info(body, reason="Gone", message=f"by {NAME}")
