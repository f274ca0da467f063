//! The declarations of ingresses, network policies, and the ranges and addresses of services.
//!
//! The server itself allocates cluster addresses with these ranges and addresses (`core/allocation`).

use keelson_meta::names::NameRule;
use keelson_resources::declare::{GroupDeclaration, STATUS, cluster, namespaced, served, version};

use crate::deprecation::{Deprecation, goes};

const GROUP: &str = "networking.k8s.io";

pub(crate) const DECLARATION: GroupDeclaration = GroupDeclaration {
    name: GROUP,
    priority: 17200,
    versions: &[version("v1", 15), version("v1beta1", 12)],
    resources: &[
        cluster(GROUP, "ingressclasses", "ingressclass", "IngressClass").counts_generations(),
        namespaced(GROUP, "ingresses", "ingress", "Ingress")
            .versions(&[served("v1").with(&[STATUS])])
            .short_names(&["ing"])
            .stored_at("ingress")
            .counts_generations(),
        cluster(GROUP, "ipaddresses", "ipaddress", "IPAddress")
            .versions(&[served("v1"), served("v1beta1").until(37)])
            .short_names(&["ip"])
            .names(NameRule::IpAddress),
        namespaced(GROUP, "networkpolicies", "networkpolicy", "NetworkPolicy")
            .short_names(&["netpol"])
            .counts_generations(),
        cluster(GROUP, "servicecidrs", "servicecidr", "ServiceCIDR")
            .versions(&[served("v1").with(&[STATUS]), served("v1beta1").with(&[STATUS]).until(37)]),
    ],
};

pub(crate) const DEPRECATIONS: &[Deprecation] = &[goes("v1beta1", &["IPAddress", "ServiceCIDR"], 34)];
