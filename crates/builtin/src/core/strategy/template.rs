//! The fields of pods and of their templates that feature gates guard.
//!
//! The gates are those of the markers in the Go types, and of the steps of kube-apiserver's strategies.

use keelson_registry::strategy::{ClosedFields, EACH, FieldPath};

/// Paths with the same end in the containers, the init containers and the ephemeral containers of a pod.
macro_rules! in_containers {
    ($($($name:expr),+;)+) => {
        &[
            $(
                &["containers", EACH, $($name),+],
                &["initContainers", EACH, $($name),+],
                &["ephemeralContainers", EACH, $($name),+],
            )+
        ]
    };
}

const STOP_SIGNAL: &[FieldPath] = in_containers! { "lifecycle", "stopSignal"; };
const BIND_OPTIONS: &[FieldPath] = in_containers! { "volumeMounts", EACH, "bindMountOptions"; };
const HTTP_PROTOCOL: &[FieldPath] = in_containers! {
    "livenessProbe", "httpGet", "protocol";
    "readinessProbe", "httpGet", "protocol";
    "startupProbe", "httpGet", "protocol";
    "lifecycle", "postStart", "httpGet", "protocol";
    "lifecycle", "preStop", "httpGet", "protocol";
};
const GRPC_MODE: &[FieldPath] = in_containers! {
    "livenessProbe", "grpc", "mode";
    "readinessProbe", "grpc", "mode";
    "startupProbe", "grpc", "mode";
};
const USERS_OF_FILES: &[FieldPath] = &[
    &["volumes", EACH, "configMap", "defaultUser"],
    &["volumes", EACH, "configMap", "items", EACH, "user"],
    &["volumes", EACH, "secret", "defaultUser"],
    &["volumes", EACH, "secret", "items", EACH, "user"],
    &["volumes", EACH, "downwardAPI", "defaultUser"],
    &["volumes", EACH, "downwardAPI", "items", EACH, "user"],
    &["volumes", EACH, "projected", "defaultUser"],
    &["volumes", EACH, "projected", "sources", EACH, "configMap", "items", EACH, "user"],
    &["volumes", EACH, "projected", "sources", EACH, "secret", "items", EACH, "user"],
    &["volumes", EACH, "projected", "sources", EACH, "downwardAPI", "items", EACH, "user"],
    &["volumes", EACH, "projected", "sources", EACH, "serviceAccountToken", "user"],
    &["volumes", EACH, "projected", "sources", EACH, "clusterTrustBundle", "user"],
    &["volumes", EACH, "projected", "sources", EACH, "podCertificate", "user"],
];
const TRUST_BUNDLES: &[FieldPath] = &[&["volumes", EACH, "projected", "sources", EACH, "clusterTrustBundle"]];
const POD_CERTIFICATES: &[FieldPath] = &[&["volumes", EACH, "projected", "sources", EACH, "podCertificate"]];

/// The fields of a pod spec at the path `below`.
pub(crate) fn gated_fields(below: FieldPath) -> Vec<ClosedFields> {
    let guarded: [(&str, &'static [FieldPath]); 10] = [
        ("GenericWorkload", &[&["schedulingGroup"]]),
        ("EvictionRequestAPI", &[&["evictionResponders"]]),
        ("ContainerStopSignals", STOP_SIGNAL),
        ("ClusterTrustBundleProjection", TRUST_BUNDLES),
        ("PodCertificateRequest", POD_CERTIFICATES),
        ("EmptyDirVolumeMode", &[&["volumes", EACH, "emptyDir", "mode"]]),
        ("VolumeBindMountOptions", BIND_OPTIONS),
        ("AtomicWriteVolumeUserFields", USERS_OF_FILES),
        ("H2CContainerProbe", HTTP_PROTOCOL),
        ("GRPCContainerProbeTLS", GRPC_MODE),
    ];
    guarded.into_iter().map(|(gate, fields)| ClosedFields::new(gate, below, fields)).collect()
}
