//! Tests with a simulated kube-controller-manager with `--use-service-account-credentials`. It requests a token for
//! each controller's account. The controllers' calls have only the roles of a new server. Shared informers use the
//! program's own identity.
//!
//! The list of calls comes from the work of the controllers, not from the roles, so the tests find a missing rule. The
//! program itself is not available here.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use futures::future::join_all;
use http::Method;
use keelson_testkit::{Raw, TestServer};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::signed_clients::signed_client;

const ACCOUNTS: &str = "/api/v1/namespaces/kube-system/serviceaccounts";
const NAMED: &str = "nobody-has-this-name";
/// The cluster-scoped resources.
const CLUSTER_WIDE: [&str; 16] = [
    "certificatesigningrequests",
    "clusterrolebindings",
    "clusterroles",
    "clustertrustbundles",
    "csidrivers",
    "csinodes",
    "ipaddresses",
    "namespaces",
    "nodes",
    "persistentvolumes",
    "servicecidrs",
    "storageclasses",
    "subjectaccessreviews",
    "validatingadmissionpolicies",
    "volumeattachments",
    "volumeattributesclasses",
];

/// The calls of each controller: `verbs version resources`, one per line. All of them write events.
const WORK: [(&str, &str); 43] = [
    (
        "attachdetach-controller",
        "list,watch v1 persistentvolumes,persistentvolumeclaims,pods,nodes
         list,watch storage.k8s.io/v1 csidrivers,csinodes
         get,list,watch,create,delete storage.k8s.io/v1 volumeattachments
         patch v1 nodes/status
         event",
    ),
    (
        "bootstrap-signer",
        "get,list,watch v1 kube-system:secrets\nget,list,watch v1 kube-public:configmaps\nevent v1 kube-public",
    ),
    (
        "certificate-controller",
        "get,list,watch,delete certificates.k8s.io/v1 certificatesigningrequests
         update certificates.k8s.io/v1 certificatesigningrequests/approval,certificatesigningrequests/status
         create authorization.k8s.io/v1 subjectaccessreviews
         event",
    ),
    ("cloud-provider", "create,get,list,watch v1 kube-system:configmaps"),
    ("clusterrole-aggregation-controller", "get,list,watch,patch rbac.authorization.k8s.io/v1 clusterroles"),
    (
        "cronjob-controller",
        "get,list,watch batch/v1 cronjobs
         update batch/v1 cronjobs/status
         get,list,watch,create,delete batch/v1 jobs
         event",
    ),
    (
        "daemon-set-controller",
        "get,list,watch apps/v1 daemonsets
         update apps/v1 daemonsets/status
         get,list,create,update,patch,delete apps/v1 controllerrevisions
         list,watch v1 nodes
         list,watch,create,patch,delete v1 pods
         event",
    ),
    (
        "deployment-controller",
        "get,list,watch,update apps/v1 deployments
         update apps/v1 deployments/status
         get,list,watch,create,update,patch,delete apps/v1 replicasets
         list,watch v1 pods
         event",
    ),
    (
        "device-taint-eviction-controller",
        "get,list,watch,delete v1 pods
         patch v1 pods/status
         list,watch resource.k8s.io/v1 resourceclaims,resourceslices
         event",
    ),
    (
        "disruption-controller",
        "get,list,watch policy/v1 poddisruptionbudgets
         update policy/v1 poddisruptionbudgets/status
         get apps/v1 deployments,replicasets,statefulsets,deployments/scale
         get v1 replicationcontrollers
         patch v1 pods/status
         event",
    ),
    (
        "endpoint-controller",
        "list,watch v1 services,pods
         get,list,create,update,delete v1 endpoints
         create v1 endpoints/restricted
         event",
    ),
    (
        "endpointslice-controller",
        "list,watch v1 services,pods,nodes
         get,list,watch,create,update,delete discovery.k8s.io/v1 endpointslices
         event",
    ),
    (
        "endpointslicemirroring-controller",
        "list,watch v1 services,endpoints
         get,list,watch,create,update,delete discovery.k8s.io/v1 endpointslices
         event",
    ),
    ("ephemeral-volume-controller", "list,watch v1 pods\nlist,watch,create v1 persistentvolumeclaims\nevent"),
    (
        "expand-controller",
        "get,list,watch,patch,update v1 persistentvolumes
         get,list,watch v1 persistentvolumeclaims
         patch v1 persistentvolumeclaims/status
         event",
    ),
    (
        "generic-garbage-collector",
        "get,list,watch,patch,update,delete v1 configmaps,secrets,pods\nget,delete batch/v1 jobs\nevent",
    ),
    (
        "horizontal-pod-autoscaler",
        "get,list,watch autoscaling/v2 horizontalpodautoscalers
         update autoscaling/v2 horizontalpodautoscalers/status
         get,update apps/v1 deployments/scale,replicasets/scale,statefulsets/scale
         get,update v1 replicationcontrollers/scale
         list v1 pods
         event",
    ),
    (
        "job-controller",
        "get,list,watch,patch,update batch/v1 jobs
         update batch/v1 jobs/status
         list,watch,create,patch,delete v1 pods
         event",
    ),
    (
        "legacy-service-account-token-cleaner",
        "get v1 kube-system:configmaps@kube-apiserver-legacy-service-account-token-tracking\npatch,delete v1 secrets",
    ),
    (
        "namespace-controller",
        "get,list,watch,delete v1 namespaces
         update v1 namespaces/finalize,namespaces/status
         list,delete,deletecollection v1 configmaps,secrets,pods
         list,delete,deletecollection apps/v1 deployments",
    ),
    (
        "node-controller",
        "get,list,update,patch,delete v1 nodes
         patch,update v1 nodes/status
         list,get,delete v1 pods
         patch,update v1 pods/status
         event",
    ),
    (
        "persistent-volume-binder",
        "get,list,watch,create,update,delete v1 persistentvolumes
         update v1 persistentvolumes/status,persistentvolumeclaims/status
         get,list,watch,update v1 persistentvolumeclaims
         list,watch storage.k8s.io/v1 storageclasses
         get,list,watch,create,delete v1 pods
         list v1 nodes
         event",
    ),
    ("pod-garbage-collector", "list,watch,delete v1 pods\nget,list v1 nodes\npatch v1 pods/status"),
    ("pv-protection-controller", "get,list,watch,update v1 persistentvolumes\nevent"),
    ("pvc-protection-controller", "get,list,watch,update v1 persistentvolumeclaims\nget,list,watch v1 pods\nevent"),
    (
        "replicaset-controller",
        "get,list,watch,update apps/v1 replicasets
         update apps/v1 replicasets/status
         list,watch,create,patch,delete v1 pods
         event",
    ),
    (
        "replication-controller",
        "get,list,watch,update v1 replicationcontrollers
         update v1 replicationcontrollers/status
         list,watch,create,patch,delete v1 pods
         event",
    ),
    (
        "resource-claim-controller",
        "get,list,watch v1 pods
         get,list,watch,create,delete resource.k8s.io/v1 resourceclaims
         update resource.k8s.io/v1 resourceclaims/status
         patch v1 pods/status
         event",
    ),
    ("resourcequota-controller", "list,watch v1 resourcequotas,pods,secrets\nupdate v1 resourcequotas/status\nevent"),
    ("root-ca-cert-publisher", "create,update v1 configmaps\nevent"),
    ("route-controller", "list,watch v1 nodes\npatch v1 nodes/status\nevent"),
    (
        "selinux-warning-controller",
        "list,watch v1 persistentvolumes,persistentvolumeclaims,pods
         list,watch storage.k8s.io/v1 csidrivers
         event",
    ),
    ("service-account-controller", "create v1 serviceaccounts\nevent"),
    (
        "service-cidrs-controller",
        "get,list,watch,patch,update networking.k8s.io/v1 servicecidrs
         patch,update networking.k8s.io/v1 servicecidrs/status
         get,list,watch networking.k8s.io/v1 ipaddresses
         event",
    ),
    ("service-controller", "get,list,watch v1 services\npatch,update v1 services/status\nlist,watch v1 nodes\nevent"),
    (
        "statefulset-controller",
        "get,list,watch apps/v1 statefulsets
         update apps/v1 statefulsets/status
         get,create,patch,update,delete v1 pods
         get,create v1 persistentvolumeclaims
         get,list,create,update,patch,delete apps/v1 controllerrevisions
         event",
    ),
    ("token-cleaner", "get,list,watch,delete v1 kube-system:secrets\nevent v1 kube-system"),
    ("ttl-after-finished-controller", "get,list,watch,delete batch/v1 jobs\nevent"),
    (
        "kube-apiserver-serving-clustertrustbundle-publisher",
        "create,delete,list,update,watch certificates.k8s.io/v1 clustertrustbundles
         event",
    ),
    ("podcertificaterequestcleaner", "get,list,watch,delete certificates.k8s.io/v1 podcertificaterequests"),
    ("ttl-controller", "list,watch,patch,update v1 nodes\nevent"),
    (
        "validatingadmissionpolicy-status-controller",
        "get,list,watch admissionregistration.k8s.io/v1 validatingadmissionpolicies
         patch,update admissionregistration.k8s.io/v1 validatingadmissionpolicies/status
         event",
    ),
    (
        "volumeattributesclass-protection-controller",
        "get,list,watch,update storage.k8s.io/v1 volumeattributesclasses
         list,watch v1 persistentvolumes,persistentvolumeclaims
         event",
    ),
];

/// Calls that no controller may make.
const NOBODYS: &str = "create rbac.authorization.k8s.io/v1 clusterrolebindings,rolebindings
    create v1 serviceaccounts/token,pods/exec,namespaces";

/// Calls that the named controller may not make, though another may.
const ANOTHERS: [(&str, &str); 16] = [
    ("attachdetach-controller", "delete v1 persistentvolumes,nodes\nlist v1 secrets"),
    ("bootstrap-signer", "list v1 default:secrets\nupdate v1 kube-system:configmaps\ndelete v1 kube-system:secrets"),
    ("cronjob-controller", "create v1 pods\nlist v1 secrets"),
    ("daemon-set-controller", "create apps/v1 daemonsets\ndelete v1 nodes"),
    ("deployment-controller", "create v1 pods\ndelete apps/v1 deployments"),
    ("endpoint-controller", "create v1 services\ndelete v1 pods"),
    ("horizontal-pod-autoscaler", "delete v1 pods\nupdate apps/v1 deployments"),
    ("job-controller", "create apps/v1 deployments\nlist v1 secrets"),
    ("namespace-controller", "create,update v1 configmaps\npatch v1 pods"),
    ("persistent-volume-binder", "delete v1 persistentvolumeclaims\ndelete v1 nodes"),
    ("replicaset-controller", "update apps/v1 deployments\nlist v1 secrets"),
    ("resourcequota-controller", "delete v1 pods\nupdate v1 resourcequotas"),
    ("root-ca-cert-publisher", "delete v1 configmaps\nget v1 secrets"),
    ("service-account-controller", "create,get v1 secrets\ndelete v1 serviceaccounts"),
    ("token-cleaner", "list v1 default:secrets\ncreate v1 kube-system:secrets"),
    ("ttl-controller", "delete v1 nodes\nlist v1 pods"),
];

/// A call of a controller.
struct Call {
    verb: &'static str,
    path: String,
}

/// Parses the calls of some lines.
fn calls(lines: &'static str) -> Vec<Call> {
    let mut calls = Vec::new();
    for line in lines.lines().map(str::trim) {
        let parts: Vec<&'static str> = line.split(' ').collect();
        let (verbs, version, resources) = match parts.as_slice() {
            ["event"] => ("create,patch", "v1", "events"),
            ["event", _, "kube-public"] => ("create", "v1", "kube-public:events"),
            ["event", _, "kube-system"] => ("create", "v1", "kube-system:events"),
            [verbs, version, resources] => (*verbs, *version, *resources),
            _ => panic!("{line}"),
        };
        for resource in resources.split(',') {
            calls.extend(verbs.split(',').map(|verb| Call { verb, path: path(verb, version, resource) }));
        }
    }
    calls
}

/// The path of a call; lists and watches cover all namespaces unless one is named.
fn path(verb: &str, version: &str, resource: &str) -> String {
    let (namespace, resource) = resource.split_once(':').map_or((None, resource), |(at, rest)| (Some(at), rest));
    let (resource, name) = resource.split_once('@').unwrap_or((resource, NAMED));
    let (plural, below) = resource.split_once('/').map_or((resource, ""), |(plural, below)| (plural, below));
    let is_cluster_wide = CLUSTER_WIDE.contains(&plural);
    let mut path = format!("/{}/{version}", if version == "v1" { "api" } else { "apis" });
    match (namespace, verb) {
        (None, "list" | "watch") => {}
        _ if is_cluster_wide => {}
        (at, _) => write!(path, "/namespaces/{}", at.unwrap_or("default")).unwrap(),
    }
    write!(path, "/{plural}").unwrap();
    if matches!(verb, "get" | "update" | "patch" | "delete") || !below.is_empty() && below != "restricted" {
        write!(path, "/{name}").unwrap();
    }
    match below {
        "" | "restricted" => path,
        below => format!("{path}/{below}"),
    }
}

impl Call {
    /// Sends the call. Returns the code and the body.
    async fn made_by(&self, raw: &Raw, token: &str) -> (u16, Value) {
        let name = json!({"metadata": {"name": NAMED}});
        let dry = format!("{}?dryRun=All", self.path);
        let call = match self.verb {
            "watch" => raw.get(format!("{}?watch=1&timeoutSeconds=1", self.path)),
            "create" => raw.post(dry, &name),
            "update" => raw.put(dry, &name),
            "patch" => raw.patch(dry, "application/merge-patch+json", &json!({"metadata": {"labels": {"a": "b"}}})),
            "delete" => raw.delete(dry),
            "deletecollection" => raw.call(Method::DELETE, format!("{dry}&labelSelector=nobody=has-it")),
            _ => raw.get(&self.path),
        };
        let call = if token.is_empty() { call } else { call.header("authorization", format!("Bearer {token}")) };
        let answer = call.await;
        let body = if self.verb == "watch" { Value::Null } else { answer.json() };
        (answer.status, body)
    }

    /// The reason why a response is not that of a permitted call.
    fn fault(&self, status: u16, answer: &Value) -> Option<String> {
        let is_done = (200..=202).contains(&status);
        let is_of_object = match self.verb {
            "list" | "watch" | "deletecollection" => false,
            "create" => matches!(status, 400 | 404 | 409 | 422),
            _ => matches!(status, 400 | 409 | 422) || status == 404 && answer["details"]["name"].is_string(),
        };
        (!is_done && !is_of_object).then(|| format!("{} {}: {status} {}", self.verb, self.path, answer["message"]))
    }
}

/// The accounts of controllers to which a new server binds roles.
async fn bound(admin: &Raw) -> BTreeSet<String> {
    let mut accounts = BTreeSet::new();
    for plural in ["clusterrolebindings", "rolebindings"] {
        let all = admin.get(format!("/apis/rbac.authorization.k8s.io/v1/{plural}")).await.expect(200).json();
        for binding in all["items"].as_array().unwrap() {
            let is_of_controller = binding["metadata"]["name"].as_str().unwrap().starts_with("system:controller:");
            let subjects = binding["subjects"].as_array().into_iter().flatten();
            let names = subjects.filter(|subject| subject["kind"] == "ServiceAccount" && is_of_controller);
            accounts.extend(names.map(|subject| subject["name"].as_str().unwrap().to_owned()));
        }
    }
    accounts
}

/// A token of an account, as kube-controller-manager gets it. Creates the account if it is missing.
async fn token(manager: &Raw, account: &str) -> String {
    if manager.get(format!("{ACCOUNTS}/{account}")).await.status == 404 {
        let made = manager.post(ACCOUNTS, &json!({"metadata": {"name": account, "namespace": "kube-system"}}));
        assert!(matches!(made.await.status, 201 | 409), "{account}");
    }
    let request = json!({"spec": {"expirationSeconds": 3600}});
    let answer = manager.post(format!("{ACCOUNTS}/{account}/token"), &request).await.expect(201).json();
    answer["status"]["token"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bootstrap_roles_suffice_for_the_controllers() {
    let files = TempDir::new().unwrap();
    let certificates = |config: &mut keelson_server::Config| {
        config.controllers = keelson_server::Switches::parse(["*", "-serviceaccount-controller"]).unwrap();
    };
    let server = TestServer::builder().configure(certificates).start().await;
    server.running().bootstrapped().await;
    let manager = signed_client(&server, files.path(), "system:kube-controller-manager").await;
    let known: BTreeSet<String> = WORK.iter().map(|(account, _)| (*account).to_owned()).collect();
    assert_eq!(bound(&server.raw()).await, known, "each account has its work here");

    // The calls of the program itself: it takes its lease, runs informers, and creates reviews.
    let own = "get,create,update coordination.k8s.io/v1 kube-system:leases
        list,watch v1 pods,nodes,secrets,configmaps,serviceaccounts
        list,watch apps/v1 deployments,replicasets
        list,watch storage.k8s.io/v1 storageclasses
        list,watch resource.k8s.io/v1 resourceclaimtemplates
        create authentication.k8s.io/v1 tokenreviews
        create authorization.k8s.io/v1 subjectaccessreviews
        event";
    let mut faults = Vec::new();
    for call in calls(own) {
        let path = call.path.replace("/namespaces/default/tokenreviews", "/tokenreviews");
        let (status, answer) = Call { path, ..call }.made_by(&manager, "").await;
        faults.extend(Call { verb: call.verb, path: call.path }.fault(status, &answer));
    }
    let anonymous = server.anonymous();
    let of_one = async |account: &'static str, work: &'static str| {
        let token = token(&manager, account).await;
        let mut faults = Vec::new();
        for call in calls(work) {
            let (status, answer) = call.made_by(&anonymous, &token).await;
            faults.extend(call.fault(status, &answer).map(|fault| format!("{account}: {fault}")));
        }
        let others = ANOTHERS.iter().filter(|(name, _)| *name == account).map(|(_, lines)| *lines);
        for call in others.chain([NOBODYS]).flat_map(calls) {
            let (status, _) = call.made_by(&anonymous, &token).await;
            if status != 403 {
                faults.push(format!("{account} may {} {}: {status}", call.verb, call.path));
            }
        }
        faults
    };
    faults.extend(join_all(WORK.map(|(account, work)| of_one(account, work))).await.into_iter().flatten());
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
