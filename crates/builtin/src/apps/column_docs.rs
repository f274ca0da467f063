//! The descriptions of the columns in the tables of `apps`.
//!
//! The descriptions are the API documentation of the fields that the columns show. The cells are in `columns.rs`.

pub(crate) const DAEMON_SET_DESIRED: &str = "\
    The total number of nodes that should be running the daemon pod (including nodes correctly running the daemon \
    pod). More info: https://kubernetes.io/docs/concepts/workloads/controllers/daemonset/";
pub(crate) const DAEMON_SET_CURRENT: &str = "\
    The number of nodes that are running at least 1 daemon pod and are supposed to run the daemon pod. More info: \
    https://kubernetes.io/docs/concepts/workloads/controllers/daemonset/";
pub(crate) const DAEMON_SET_READY: &str = "\
    numberReady is the number of nodes that should be running the daemon pod and have one or more of the daemon pod \
    running with a Ready Condition.";
pub(crate) const DAEMON_SET_AVAILABLE: &str = "\
    The number of nodes that should be running the daemon pod and have one or more of the daemon pod running and \
    available (ready for at least spec.minReadySeconds)";
pub(crate) const DAEMON_SET_NODE_SELECTOR: &str = "\
    NodeSelector is a selector which must be true for the pod to fit on a node. Selector which must match a node's \
    labels for the pod to be scheduled on that node. More info: \
    https://kubernetes.io/docs/concepts/configuration/assign-pod-node/";
pub(crate) const DAEMON_SET_SELECTOR: &str = "\
    A label query over pods that are managed by the daemon set. Must match in order to be controlled. It must match \
    the pod template's labels. More info: \
    https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors";
pub(crate) const DEPLOYMENT_UP_TO_DATE: &str =
    "Total number of non-terminating pods targeted by this deployment that have the desired template spec.";
pub(crate) const DEPLOYMENT_AVAILABLE: &str =
    "Total number of available non-terminating pods (ready for at least minReadySeconds) targeted by this deployment.";
pub(crate) const DEPLOYMENT_SELECTOR: &str = "\
    Label selector for pods. Existing ReplicaSets whose pods are selected by this will be the ones affected by this \
    deployment. It must match the pod template's labels.";
pub(crate) const REPLICA_SET_DESIRED: &str = "\
    Replicas is the number of desired pods. This is a pointer to distinguish between explicit zero and unspecified. \
    Defaults to 1. More info: https://kubernetes.io/docs/concepts/workloads/controllers/replicaset";
pub(crate) const REPLICA_SET_CURRENT: &str = "\
    Replicas is the most recently observed number of non-terminating pods. More info: \
    https://kubernetes.io/docs/concepts/workloads/controllers/replicaset";
pub(crate) const REPLICA_SET_READY: &str =
    "The number of non-terminating pods targeted by this ReplicaSet with a Ready Condition.";
pub(crate) const REPLICA_SET_SELECTOR: &str = "\
    Selector is a label query over pods that should match the replica count. Label keys and values that must match in \
    order to be controlled by this replica set. It must match the pod template's labels. More info: \
    https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors";
