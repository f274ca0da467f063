//! Tests of published definitions of well-known projects, and of their objects: applied, explained, shown and deleted.
//!
//! The definitions are not in this repository: `cargo xtask test` downloads them, or reports that it can't.

use std::path::PathBuf;

use futures::StreamExt as _;

use crate::Shell;

/// The environment variable with their directory; `cargo xtask definitions` prints it.
const VARIABLE: &str = "KEELSON_TEST_DEFINITIONS";
/// The number of concurrent runs.
const PARALLEL: usize = 4;

/// A definition, the file of one of its objects, and one of its fields.
struct Published {
    name: &'static str,
    file: &'static str,
    object: &'static str,
    field: &'static str,
}

const fn published(name: &'static str, file: &'static str, object: &'static str, field: &'static str) -> Published {
    Published { name, file, object, field }
}

const ALL: [Published; 11] = [
    published("agents.agent-install.openshift.io", "agent-crd.yaml", "agent.yaml", "spec.clusterDeploymentName"),
    published("applications.argoproj.io", "applications.argoproj.io.yaml", "app.yaml", "spec.source.helm.parameters"),
    published(
        "certificates.cert-manager.io",
        "certificates.cert-manager.io.yaml",
        "cert.yaml",
        "spec.privateKey.algorithm",
    ),
    published(
        "destinationrules.networking.istio.io",
        "destinationrule-crd.yaml",
        "destinationrule.yaml",
        "spec.trafficPolicy.tls",
    ),
    published(
        "httproutes.gateway.networking.k8s.io",
        "httproute-crd.yaml",
        "httproute.yaml",
        "spec.rules.matches.path",
    ),
    published("multiversions.clux.dev", "mv-crd.yaml", "mv.yaml", "spec.name"),
    published(
        "podmonitors.monitoring.coreos.com",
        "podmonitors.monitoring.coreos.com.yaml",
        "podmon.yaml",
        "spec.podMetricsEndpoints.port",
    ),
    published(
        "prometheusrules.monitoring.coreos.com",
        "prometheusrules.monitoring.coreos.com.yaml",
        "pr.yaml",
        "spec.groups.rules.expr",
    ),
    published("servers.policy.linkerd.io", "server-crd.yaml", "server.yaml", "spec.podSelector"),
    published(
        "serverauthorizations.policy.linkerd.io",
        "serverauth-crd.yaml",
        "serverauth.yaml",
        "spec.client.meshTLS",
    ),
    published(
        "servicemonitors.monitoring.coreos.com",
        "servicemonitors.monitoring.coreos.com.yaml",
        "servicemon.yaml",
        "spec.endpoints.tlsConfig",
    ),
];

/// The directory of the definitions; `None` if they could not be fetched.
#[allow(clippy::print_stderr, reason = "who runs the tests is told what was not run")]
fn directory() -> Option<PathBuf> {
    let directory = std::env::var_os(VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from);
    if directory.is_none() {
        eprintln!("NOT run: {VARIABLE} names no definitions (cargo xtask test fetches them)");
    }
    directory
}

#[tokio::test(flavor = "multi_thread")]
async fn published_definitions_are_served_and_accept_their_samples() {
    let Some(directory) = directory() else { return };
    let shell = &Shell::start().await;
    let path = &|file: &str| directory.join(file).display().to_string();
    let each = futures::stream::iter(&ALL).map(|Published { name, file, object, field }| async move {
        let made = shell.ok(&format!("create -f {}", path(file))).await;
        assert_eq!(made, format!("customresourcedefinition.apiextensions.k8s.io/{name} created\n"));
        shell.is_established(name).await;
        let applied = format!("apply --server-side --validate=strict -f {}", path(object));
        let told = shell.ok(&applied).await;
        assert!(told.ends_with("serverside-applied\n"), "{object}: {told}");
        assert_eq!(shell.ok(&applied).await, told, "{object} again");
        let shown = shell.ok(&format!("get -f {}", path(object))).await;
        assert!(shown.starts_with("NAME"), "{object}: {shown}");
        let explained = shell.ok(&format!("explain {name}.{field}")).await;
        assert!(explained.contains("DESCRIPTION:"), "{name}: {explained}");
        let wrong =
            format!("patch -f {} --type merge --dry-run=server -p {{\"spec\":{{\"nobodyKnows\":1}}}}", path(object));
        let warned = shell.kubectl(&wrong).await;
        assert!(warned.stderr.contains("unknown field \"spec.nobodyKnows\""), "{object}: {}", warned.stderr);
        shell.ok(&format!("delete -f {}", path(object))).await;
    });
    each.buffer_unordered(PARALLEL).collect::<Vec<()>>().await;
    let names: Vec<&str> = ALL.iter().map(|published| published.name).collect();
    shell.ok(&format!("delete crd {}", names.join(" "))).await;
    assert_eq!(shell.kubectl("get crd").await.stderr, "No resources found\n");
}
