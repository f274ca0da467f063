//! Tests the tables of the core group, except for pods.
//!
//! The tests cover all columns, including those of `-o wide`.

use keelson_meta::json::{Value, json};

use super::{cell, check};

#[test]
fn data_is_counted() {
    check("", "ConfigMap", json!({"data": {"a": "1", "b": "2"}, "binaryData": {"c": ""}}), json!(["x", 3, "3d4h"]));
    check("", "ConfigMap", json!({}), json!(["x", 0, "3d4h"]));
    check("", "Secret", json!({"type": "Opaque", "data": {"a": "MQ=="}}), json!(["x", "Opaque", 1, "3d4h"]));
}

#[test]
fn namespaces_show_their_phase() {
    check("", "Namespace", json!({"status": {"phase": "Terminating"}}), json!(["x", "Terminating", "3d4h"]));
}

#[test]
fn services_show_their_addresses() {
    let fields = json!({"spec": {"type": "NodePort", "clusterIP": "10.0.0.4", "clusterIPs": ["10.0.0.4", "fd00::4"],
        "ports": [{"port": 80, "protocol": "TCP", "nodePort": 30080}, {"port": 53, "protocol": "UDP"}],
        "selector": {"tier": "front", "app": "web"}}});
    let ports = "80:30080/TCP,53/UDP";
    check("", "Service", fields, json!(["x", "NodePort", "10.0.0.4", "<none>", ports, "3d4h", "app=web,tier=front"]));
    let headless = json!({"spec": {"type": "ClusterIP", "clusterIP": "None"}});
    check("", "Service", headless, json!(["x", "ClusterIP", "None", "<none>", "<none>", "3d4h", "<none>"]));
    let external = json!({"spec": {"type": "ExternalName", "externalName": "db.example.org"}});
    check(
        "",
        "Service",
        external,
        json!(["x", "ExternalName", "<none>", "db.example.org", "<none>", "3d4h", "<none>"]),
    );
}

#[test]
fn load_balancers_are_pending_until_they_report() {
    let address = |ingress: Value, declared: Value| {
        cell(
            "",
            "Service",
            "External-IP",
            json!({
                "spec": {"type": "LoadBalancer", "externalIPs": declared},
                "status": {"loadBalancer": {"ingress": ingress}},
            }),
        )
    };
    assert_eq!(address(json!([]), json!([])), "<pending>");
    let long = json!([{"ip": "192.0.2.200"}, {"hostname": "a-very-long-name.example.org"}, {"ip": "192.0.2.1"},
        {"ip": "192.0.2.1"}]);
    assert_eq!(address(long, json!([])), "192.0.2.1,192.0.2.200,a-very-long-name.example.org");
    assert_eq!(address(json!([{"ip": "192.0.2.1"}]), json!(["198.51.100.1"])), "192.0.2.1,198.51.100.1");
    assert_eq!(address(json!([]), json!(["198.51.100.1"])), "198.51.100.1");
}

#[test]
fn endpoints_show_the_first_three() {
    let shown = |subsets: Value| cell("", "Endpoints", "Endpoints", json!({"subsets": subsets}));
    assert_eq!(shown(json!([])), "<none>");
    assert_eq!(shown(json!([{"addresses": [], "ports": [{"port": 1}]}])), "");
    assert_eq!(shown(json!([{"addresses": [{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}]}])), "10.0.0.1,10.0.0.2");
    assert_eq!(shown(json!([{"addresses": [{"ip": "fd00::1"}], "ports": [{"port": 443}]}])), "[fd00::1]:443");
    let many = json!([
        {"addresses": [{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}], "ports": [{"port": 80}, {"port": 81}]},
        {"addresses": [{"ip": "10.0.0.3"}], "ports": [{"port": 82}]},
    ]);
    assert_eq!(shown(many), "10.0.0.1:80,10.0.0.2:80,10.0.0.1:81 + 2 more...");
}

#[test]
fn quotas_keep_limits_apart() {
    let status = json!({
        "hard": {"pods": "10", "limits.cpu": "8", "cpu": "4", "limits": "1"},
        "used": {"cpu": "500m", "limits.cpu": "1"},
    });
    let expected = json!(["x", "cpu: 500m/4, limits: 0/1, pods: 0/10", "limits.cpu: 1/8", "3d4h"]);
    check("", "ResourceQuota", json!({"status": status}), expected);
}

#[test]
fn nodes_show_state_roles_and_system() {
    let fields = json!({
        "metadata": {"labels": {"node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/": "",
            "kubernetes.io/role": "edge", "node-role.kubernetes.io/edge": "true"}},
        "spec": {"unschedulable": true},
        "status": {
            "conditions": [{"type": "DiskPressure", "status": "False"}, {"type": "Ready", "status": "True"}],
            "addresses": [{"type": "Hostname", "address": "n1"}, {"type": "InternalIP", "address": "10.9.0.1"},
                {"type": "InternalIP", "address": "fd00::9"}],
            "nodeInfo": {"kubeletVersion": "v1.36.0", "osImage": "Some Linux", "kernelVersion": "6.1",
                "containerRuntimeVersion": "containerd://2.1"},
        },
    });
    let expected = json!([
        "x",
        "Ready,SchedulingDisabled",
        "edge,worker",
        "3d4h",
        "v1.36.0",
        "10.9.0.1",
        "<none>",
        "Some Linux",
        "6.1",
        "containerd://2.1"
    ]);
    check("", "Node", fields, expected);
    let status = |ready: &str| {
        cell("", "Node", "Status", json!({"status": {"conditions": [{"type": "Ready", "status": ready}]}}))
    };
    assert_eq!(status("False"), "NotReady");
    assert_eq!(status("Unknown"), "NotReady");
    assert_eq!(cell("", "Node", "Status", json!({})), "Unknown");
    assert_eq!(cell("", "Node", "OS-Image", json!({})), "<unknown>");
}

#[test]
fn volumes_show_their_claim() {
    let fields = json!({
        "spec": {"capacity": {"storage": "5Gi"}, "accessModes": ["ReadWriteMany", "ReadWriteOnce", "ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Delete", "claimRef": {"namespace": "d", "name": "data"},
            "storageClassName": "fast", "volumeMode": "Block", "volumeAttributesClassName": "gold"},
        "status": {"phase": "Bound"},
    });
    let expected = json!(["x", "5Gi", "RWO,RWX", "Delete", "Bound", "d/data", "fast", "gold", "", "3d4h", "Block"]);
    check("", "PersistentVolume", fields, expected);
    let bare = json!(["x", "0", "", "", "", "", "", "<unset>", "", "3d4h", "<unset>"]);
    check("", "PersistentVolume", json!({}), bare);
}

#[test]
fn volume_claims_show_volume_capacity_and_access_modes() {
    let spec = |volume: &str| {
        json!({"volumeName": volume, "storageClassName": "fast",
        "resources": {"requests": {"storage": "1Gi"}}})
    };
    let status =
        json!({"phase": "Bound", "capacity": {"storage": "2Gi"}, "accessModes": ["ReadWriteOncePod", "ReadOnlyMany"]});
    let bound = json!({"spec": spec("pv1"), "status": status});
    check(
        "",
        "PersistentVolumeClaim",
        bound,
        json!(["x", "Bound", "pv1", "2Gi", "ROX,RWOP", "fast", "<unset>", "3d4h", "<unset>"]),
    );
    let pending = json!({"spec": spec(""), "status": {"phase": "Pending"}});
    check(
        "",
        "PersistentVolumeClaim",
        pending,
        json!(["x", "Pending", "", "", "", "fast", "<unset>", "3d4h", "<unset>"]),
    );
    let metadata = json!({"deletionTimestamp": "2026-03-10T12:00:00Z",
        "annotations": {"volume.beta.kubernetes.io/storage-class": "old"}});
    let leaving = json!({"metadata": metadata, "spec": spec("")});
    check(
        "",
        "PersistentVolumeClaim",
        leaving,
        json!(["x", "Terminating", "", "", "", "old", "<unset>", "3d4h", "<unset>"]),
    );
}

#[test]
fn events_of_both_groups_show_the_same_row() {
    let core = json!({
        "firstTimestamp": "2026-03-10T10:00:00Z", "lastTimestamp": "2026-03-10T11:58:00Z", "count": 12,
            "type": "Warning",
        "reason": "BackOff", "involvedObject": {"kind": "Pod", "name": "web", "fieldPath": "spec.containers{a}"},
        "source": {"component": "kubelet", "host": "n1"}, "message": " Back-off \n", "eventTime": null,
    });
    let own = json!({
        "deprecatedFirstTimestamp": "2026-03-10T10:00:00Z", "deprecatedLastTimestamp": "2026-03-10T11:58:00Z",
        "deprecatedCount": 12, "type": "Warning", "reason": "BackOff", "note": " Back-off \n",
        "regarding": {"kind": "Pod", "name": "web", "fieldPath": "spec.containers{a}"},
        "deprecatedSource": {"component": "kubelet", "host": "n1"},
    });
    let expected = json!([
        "2m",
        "Warning",
        "BackOff",
        "pod/web",
        "spec.containers{a}",
        "kubelet, n1",
        "Back-off",
        "120m",
        12,
        "x"
    ]);
    check("", "Event", core, expected.clone());
    check("events.k8s.io", "Event", own, expected);
}

#[test]
fn newer_events_have_one_time_or_a_series() {
    let single = json!({"eventTime": "2026-03-10T11:59:30.000000Z", "regarding": {"kind": "Node"},
        "reportingController": "sched"});
    check("events.k8s.io", "Event", single.clone(), json!(["30s", "", "", "node", "", "sched", "", "30s", 1, "x"]));
    let mut series = single;
    series["series"] = json!({"count": 5, "lastObservedTime": "2026-03-10T11:59:55.000000Z"});
    series["reportingInstance"] = json!("sched-0");
    check("events.k8s.io", "Event", series, json!(["5s", "", "", "node", "", "sched, sched-0", "", "30s", 5, "x"]));
    check("", "Event", json!({}), json!(["<unknown>", "", "", "", "", "", "", "<unknown>", 1, "x"]));
}

#[test]
fn controllers_and_templates_show_their_containers() {
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [
        {"name": "one", "image": "r/one:1"}, {"name": "two", "image": "r/two:2"}]}});
    let fields = json!({"spec": {"replicas": 3, "selector": {"a": "b"}, "template": template},
        "status": {"replicas": 2, "readyReplicas": 1}});
    check("", "ReplicationController", fields, json!(["x", 3, 2, 1, "3d4h", "one,two", "r/one:1,r/two:2", "a=b"]));
    check("", "PodTemplate", json!({"template": template}), json!(["x", "one,two", "r/one:1,r/two:2", "a=b"]));
}

#[test]
fn components_are_healthy_or_not() {
    let condition = json!({"type": "Healthy", "status": "False", "message": "down", "error": "refused"});
    check("", "ComponentStatus", json!({"conditions": [condition]}), json!(["x", "Unhealthy", "down", "refused"]));
    check("", "ComponentStatus", json!({}), json!(["x", "Unknown", "", ""]));
}
