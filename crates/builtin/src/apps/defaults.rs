//! Defaults of deployments, replica sets, stateful sets and daemon sets.
//!
//! Defaults of pod templates are in `pod.rs`. All fields that controllers read, such as the update strategy, get a
//! value.

use keelson_meta::json::Map;

use crate::core::defaults::CLAIM_TEMPLATE;
use crate::core::defaults::pod::TEMPLATE;
use crate::defaulting::type_defaults::Rule::{Always, Each, Number, Text};
use crate::defaulting::type_defaults::{FollowUp, TypeDefaults, is_absent, is_unset, object, set, text};

/// The defaults of a kind of `apps`.
pub(crate) fn defaults(kind: &str) -> Option<&'static TypeDefaults> {
    match kind {
        "Deployment" => Some(&DEPLOYMENT),
        "ReplicaSet" => Some(&REPLICA_SET),
        "StatefulSet" => Some(&STATEFUL_SET),
        "DaemonSet" => Some(&DAEMON_SET),
        _ => None,
    }
}

const DEPLOYMENT: TypeDefaults = TypeDefaults::new(&[(
    "spec",
    Always(
        &const {
            TypeDefaults::new(&[
                ("replicas", Number(1)),
                ("template", Always(&TEMPLATE)),
                ("strategy", Always(&DEPLOYMENT_STRATEGY)),
                ("revisionHistoryLimit", Number(10)),
                ("progressDeadlineSeconds", Number(600)),
            ])
        },
    ),
)]);

const DEPLOYMENT_STRATEGY: TypeDefaults = TypeDefaults {
    fields: &[("type", Text("RollingUpdate"))],
    then: &[FollowUp::Run(ROLLING, |strategy| rolling(strategy, &QUARTERS))],
};

/// The field that decides whether a rolling update has defaults.
const ROLLING: &[&str] = &["type", "rollingUpdate"];

const QUARTERS: TypeDefaults = TypeDefaults::new(&[("maxUnavailable", Text("25%")), ("maxSurge", Text("25%"))]);

const REPLICA_SET: TypeDefaults = TypeDefaults::new(&[(
    "spec",
    Always(&const { TypeDefaults::new(&[("replicas", Number(1)), ("template", Always(&TEMPLATE))]) }),
)]);

const STATEFUL_SET: TypeDefaults = TypeDefaults::new(&[(
    "spec",
    Always(
        &const {
            TypeDefaults::new(&[
                ("replicas", Number(1)),
                ("template", Always(&TEMPLATE)),
                ("volumeClaimTemplates", Each(&CLAIM_TEMPLATE)),
                ("podManagementPolicy", Text("OrderedReady")),
                ("updateStrategy", Always(&STATEFUL_SET_STRATEGY)),
                ("revisionHistoryLimit", Number(10)),
                ("persistentVolumeClaimRetentionPolicy", Always(&RETENTION)),
            ])
        },
    ),
)]);

const STATEFUL_SET_STRATEGY: TypeDefaults = TypeDefaults { fields: &[], then: &[FollowUp::Run(ROLLING, partition)] };

const RETENTION: TypeDefaults = TypeDefaults::new(&[("whenDeleted", Text("Retain")), ("whenScaled", Text("Retain"))]);

const DAEMON_SET: TypeDefaults = TypeDefaults::new(&[(
    "spec",
    Always(
        &const {
            TypeDefaults::new(&[
                ("template", Always(&TEMPLATE)),
                ("updateStrategy", Always(&DAEMON_SET_STRATEGY)),
                ("revisionHistoryLimit", Number(10)),
            ])
        },
    ),
)]);

const DAEMON_SET_STRATEGY: TypeDefaults = TypeDefaults {
    fields: &[("type", Text("RollingUpdate"))],
    then: &[FollowUp::Run(ROLLING, |strategy| rolling(strategy, &ONE_BY_ONE))],
};

const ONE_BY_ONE: TypeDefaults = TypeDefaults::new(&[("maxUnavailable", Number(1)), ("maxSurge", Number(0))]);

fn rolling(strategy: &mut Map, defaults: &'static TypeDefaults) {
    if text(strategy, "type") == "RollingUpdate" {
        Always(defaults).apply(strategy, "rollingUpdate");
    }
}

/// An absent strategy becomes a rolling update. The details of a rolling update get a default partition.
fn partition(strategy: &mut Map) {
    if is_unset(strategy, "type") {
        set(strategy, "type", "RollingUpdate");
        if is_absent(strategy, "rollingUpdate") {
            set(strategy, "rollingUpdate", Map::new());
        }
    }
    if let Some(details) = object(strategy, "rollingUpdate") {
        Number(0).apply(details, "partition");
    }
}
