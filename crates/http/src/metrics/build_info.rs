//! The metric `kubernetes_build_info`: the Kubernetes version of the API, and the build of this server.
//!
//! The labels have the values of `/version`.

use keelson_meta::Release;

use super::source::{MetricKind, Sample};
use crate::version;

pub(super) fn samples() -> Vec<Sample> {
    let document = version::document(Release::DEFAULT);
    let labels = [
        ("major", "major"),
        ("minor", "minor"),
        ("git_version", "gitVersion"),
        ("git_commit", "gitCommit"),
        ("git_tree_state", "gitTreeState"),
        ("build_date", "buildDate"),
        ("go_version", "goVersion"),
        ("compiler", "compiler"),
        ("platform", "platform"),
    ];
    let value = |member: &str| document[member].as_str().unwrap_or_default().to_owned();
    vec![Sample {
        name: "kubernetes_build_info",
        help: "The emulated release and facts of the build, always 1",
        kind: MetricKind::Gauge,
        labels: labels.into_iter().map(|(label, member)| (label, value(member))).collect(),
        value: 1.,
    }]
}
