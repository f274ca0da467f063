//! The edges between crates: a crate uses only crates of the layers below.
//!
//! The list is explicit. A new edge is a design decision, made here and in ARCHITECTURE.md, not in passing in a
//! manifest.

use super::Finding;
use crate::workspace::Member;

/// The crates that each crate may use in production code, by layer, lowest layer first.
const ALLOWED: [(&str, &[&str]); 46] = [
    // pure: no IO, no clock, no threads
    ("meta", &[]),
    ("supervision", &[]),
    // spans with ids, without a protocol
    ("telemetry", &["meta"]),
    ("protobuf", &["meta"]),
    ("codec", &["meta", "protobuf"]),
    ("resources", &["meta"]),
    ("cel", &["meta"]),
    ("schema", &["meta", "codec", "cel"]),
    ("patch", &["meta", "schema"]),
    ("tables", &["meta", "codec"]),
    ("query", &["meta", "cel", "codec"]),
    ("fairness", &["meta"]),
    // state
    ("storage", &["meta"]),
    ("storage-etcd", &["meta", "storage", "supervision", "telemetry"]),
    ("storage-sql", &["meta", "storage", "supervision"]),
    // encryption of stored values in kube-apiserver's format
    ("encryption", &["meta", "codec", "storage", "supervision"]),
    ("cache", &["meta", "codec", "storage", "supervision"]),
    // rules
    ("access", &["meta", "supervision", "codec", "cache"]),
    (
        "registry",
        &[
            "meta",
            "codec",
            "patch",
            "resources",
            "schema",
            "tables",
            "storage",
            "supervision",
            "query",
            "cache",
            "access",
        ],
    ),
    // the built-in kinds, through the registry's traits
    (
        "builtin",
        &["meta", "codec", "cel", "schema", "patch", "resources", "tables", "storage", "cache", "access", "registry"],
    ),
    // calls to other servers
    ("outbound", &["meta", "supervision", "telemetry", "codec", "cache", "registry"]),
    ("access-config", &["meta", "supervision", "cel", "codec", "access", "outbound"]),
    // clients of the registry inside of a server
    ("controllers", &["meta", "fairness", "supervision", "resources", "storage", "cache", "access", "registry"]),
    // checks of each write, and of the user
    (
        "admission",
        &[
            "meta",
            "supervision",
            "codec",
            "cel",
            "schema",
            "patch",
            "builtin",
            "resources",
            "cache",
            "access",
            "registry",
            "outbound",
            "access-config",
            "controllers",
        ],
    ),
    // documents that are built once and served unchanged
    ("discovery", &["meta", "resources"]),
    ("openapi", &["meta", "resources", "schema", "query"]),
    // embedded files
    ("console", &[]),
    // other servers that serve a part of the API
    (
        "aggregator",
        &["meta", "supervision", "codec", "cache", "registry", "outbound", "discovery", "openapi", "controllers"],
    ),
    // edge
    (
        "http",
        &[
            "meta",
            "supervision",
            "telemetry",
            "codec",
            "resources",
            "tables",
            "protobuf",
            "cache",
            "query",
            "fairness",
            "access",
            "registry",
            "outbound",
            "discovery",
            "openapi",
        ],
    ),
    (
        "extensions",
        &["meta", "supervision", "schema", "resources", "tables", "cache", "registry", "outbound", "controllers"],
    ),
    // top: wiring
    (
        "apiserver",
        &[
            "meta",
            "supervision",
            "codec",
            "resources",
            "schema",
            "storage",
            "storage-sql",
            "storage-etcd",
            "cache",
            "access",
            "registry",
            "openapi",
            "controllers",
            "http",
            "extensions",
        ],
    ),
    (
        "server",
        &[
            "meta",
            "supervision",
            "telemetry",
            "schema",
            "tables",
            "protobuf",
            "codec",
            "resources",
            "storage",
            "storage-sql",
            "storage-etcd",
            "encryption",
            "cache",
            "access",
            "access-config",
            "registry",
            "builtin",
            "console",
            "outbound",
            "admission",
            "discovery",
            "openapi",
            "http",
            "fairness",
            "controllers",
            "aggregator",
            "extensions",
        ],
    ),
    // a client of the API only
    ("kubectl", &["meta", "codec"]),
    // a client of any server, independent of this server's crates
    ("verify", &["meta"]),
    // a program without dependencies
    ("etcd-double", &[]),
    // a server in front of an existing cluster
    (
        "gateway",
        &[
            "meta",
            "supervision",
            "schema",
            "tables",
            "codec",
            "resources",
            "storage",
            "storage-sql",
            "cache",
            "access",
            "access-config",
            "registry",
            "builtin",
            "outbound",
            "openapi",
            "http",
            "extensions",
            "apiserver",
        ],
    ),
    ("keelson", &["meta", "server", "gateway", "kubectl", "verify", "etcd-double"]),
    // beside the product
    ("sim", &["meta", "supervision", "storage", "access", "server", "verify"]),
    ("teststores", &["storage"]),
    ("testkit", &["meta", "storage", "server", "teststores"]),
    // for tests of other projects: published, so it uses only published crates
    ("test", &["meta", "storage", "server"]),
    // protocols without the code that follows them
    ("models", &[]),
    ("bench", &["teststores"]),
    (
        "fuzz",
        &["meta", "cel", "codec", "schema", "builtin", "registry", "patch", "protobuf", "query", "storage", "http"],
    ),
    ("dist", &[]),
    ("xtask", &[]),
];

/// Further dependencies that tests of any crate may use: all engines, whole servers, a parser of their protobuf, the
/// built-in kinds and schemas, and contributions to a running server.
const FOR_TESTS: [&str; 14] = [
    "builtin",
    "meta",
    "schema",
    "storage",
    "storage-etcd",
    "storage-sql",
    "test",
    "testkit",
    "teststores",
    "protobuf",
    "resources",
    "registry",
    "outbound",
    "tables",
];

pub(super) fn check(members: &[Member]) -> Vec<Finding> {
    members.iter().flat_map(check_member).collect()
}

fn check_member(member: &Member) -> Vec<Finding> {
    let name = short(&member.name);
    let Some((_, allowed)) = ALLOWED.iter().find(|(known, _)| *known == name) else {
        return vec![Finding::fault(name, "this crate has no layer: give it one in xtask/src/tidy/edges.rs")];
    };
    let forbidden = |on: &str, dev: bool| !(allowed.contains(&on) || on == name || dev && FOR_TESTS.contains(&on));
    let mut faults = Vec::new();
    for edge in &member.uses {
        let on = short(&edge.on);
        if forbidden(on, edge.dev) {
            faults.push(Finding::fault(
                name,
                format!("may not use {on}: the layers in xtask/src/tidy/edges.rs forbid it"),
            ));
        }
    }
    faults
}

/// The name in the list: `meta` for `keelson-meta`. The binary keeps its name.
fn short(name: &str) -> &str {
    name.strip_prefix("keelson-").unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::{ALLOWED, check_member};
    use crate::workspace::{Edge, Member};

    fn member(name: &str, on: &str, dev: bool) -> Member {
        let uses = vec![Edge { on: on.into(), dev, has_version: false }];
        Member { name: name.into(), uses, is_published: false, is_described: false }
    }

    #[test]
    fn an_edge_upwards_is_a_fault() {
        assert!(check_member(&member("keelson-cache", "keelson-storage", false)).is_empty());
        assert_eq!(check_member(&member("keelson-cache", "keelson-http", false)).len(), 1);
        assert_eq!(check_member(&member("keelson-codec", "keelson-testkit", false)).len(), 1);
        assert!(check_member(&member("keelson", "keelson-testkit", true)).is_empty());
        assert_eq!(check_member(&member("keelson-new", "keelson-meta", false)).len(), 1);
    }

    #[test]
    fn the_list_itself_has_no_cycle() {
        let rank = |name: &str| ALLOWED.iter().position(|(known, _)| *known == name).expect("every name has a layer");
        for (name, allowed) in ALLOWED {
            for on in allowed {
                assert!(rank(on) < rank(name), "{name} uses {on}, which is listed after it");
            }
        }
    }
}
