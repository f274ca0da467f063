"""Uses clients that openapi-generator made from the documents of the server: one of core/v1, one of a custom group."""

import os

import core_v1
import promised_v1
from core_v1.exceptions import ApiException

SETTINGS = {
    "host": os.environ["CLIENT_URL"],
    "ssl_ca_cert": os.environ["CLIENT_CA"],
    "api_key": {"BearerToken": os.environ["CLIENT_TOKEN"]},
    "api_key_prefix": {"BearerToken": "Bearer"},
}
MERGE = "application/merge-patch+json"


def config_maps(api):
    meta = core_v1.IoK8sApimachineryPkgApisMetaV1ObjectMeta(name="python", labels={"client": "python"})
    new = core_v1.IoK8sApiCoreV1ConfigMap(metadata=meta, data={"a": "1"}, binary_data={"b": "AAEC"})
    made = api.create_core_v1_namespaced_config_map("default", new)
    assert made.metadata.uid and made.data == {"a": "1"} and made.binary_data == {"b": "AAEC"}, made
    assert made.metadata.creation_timestamp.tzinfo is not None, made
    made.data["a"] = "2"
    replaced = api.replace_core_v1_namespaced_config_map("python", "default", made)
    assert replaced.metadata.resource_version != made.metadata.resource_version, replaced
    change = {"data": {"c": "3"}}
    patched = api.patch_core_v1_namespaced_config_map("python", "default", change, _content_type=MERGE)
    assert patched.data == {"a": "2", "c": "3"}, patched
    listed = api.list_core_v1_namespaced_config_map("default", label_selector="client=python", limit=1)
    assert [item.metadata.name for item in listed.items] == ["python"], listed
    status = api.delete_core_v1_namespaced_config_map("python", "default")
    assert status.status == "Success", status
    try:
        api.read_core_v1_namespaced_config_map("python", "default")
    except ApiException as error:
        assert error.status == 404 and '"reason":"NotFound"' in error.body.replace(" ", ""), error
    else:
        raise AssertionError("a deleted object is read")


def pods(api):
    quantity = core_v1.IoK8sApimachineryPkgApiResourceQuantity("100m")
    port = core_v1.IoK8sApimachineryPkgUtilIntstrIntOrString("web")
    probe = core_v1.IoK8sApiCoreV1Probe(http_get=core_v1.IoK8sApiCoreV1HTTPGetAction(port=port))
    container = core_v1.IoK8sApiCoreV1Container(
        name="a",
        image="a:1",
        ports=[core_v1.IoK8sApiCoreV1ContainerPort(name="web", container_port=80)],
        readiness_probe=probe,
        resources=core_v1.IoK8sApiCoreV1ResourceRequirements(requests={"cpu": quantity}),
    )
    meta = core_v1.IoK8sApimachineryPkgApisMetaV1ObjectMeta(name="python")
    new = core_v1.IoK8sApiCoreV1Pod(metadata=meta, spec=core_v1.IoK8sApiCoreV1PodSpec(containers=[container]))
    made = api.create_core_v1_namespaced_pod("default", new)
    assert made.spec.containers[0].resources.requests["cpu"].actual_instance == "100m", made
    assert made.spec.containers[0].readiness_probe.http_get.port.actual_instance == "web", made
    assert made.status.phase == "Pending" and made.status.qos_class == "Burstable", made
    # Every kind of the group can be read, whatever the server has put into its objects.
    for name in dir(api):
        if name.startswith("list_core_v1_") and "_with" not in name and name.endswith("_for_all_namespaces"):
            getattr(api, name)()


def promises(api):
    meta = promised_v1.IoK8sApimachineryPkgApisMetaV1ObjectMeta(name="python")
    spec = promised_v1.OrgExamplePromisedV1PromiseSpec(label="one", open={"any": [1, "two"]})
    made = api.create_promised_example_org_v1_namespaced_promise(
        "default",
        promised_v1.OrgExamplePromisedV1Promise(
            api_version="promised.example.org/v1", kind="Promise", metadata=meta, spec=spec
        ),
    )
    assert made.spec.size == 1 and made.spec.on is False and made.spec.open == {"any": [1, "two"]}, made
    listed = api.list_promised_example_org_v1_namespaced_promise("default")
    assert [item.metadata.name for item in listed.items] == ["python"], listed
    api.delete_promised_example_org_v1_namespaced_promise("python", "default")


core = core_v1.CoreV1Api(core_v1.ApiClient(core_v1.Configuration(**SETTINGS)))
config_maps(core)
pods(core)
promises(promised_v1.PromisedExampleOrgV1Api(promised_v1.ApiClient(promised_v1.Configuration(**SETTINGS))))
print("passed")
