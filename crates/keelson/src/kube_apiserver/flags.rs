//! The flags of kube-apiserver, one a row, with the class of each.
//!
//! The parser follows pflag: `--name=value`, `--name value`, and a switch without a value. It rejects unknown flags, as
//! kube-apiserver does.

use super::own::TranslatedFlag;

/// A flag of kube-apiserver.
pub(super) struct Flag {
    pub(super) name: &'static str,
    pub(super) form: Form,
    pub(super) class: Class,
}

/// The form of a flag's value, for parsing and for `--help`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// `true` if the flag has no value.
    Switch,
    Text,
    /// The path of a file. An empty value counts as no flag, as in kube-apiserver.
    File,
    List,
    Number,
    Duration,
}

/// The class of a flag.
#[derive(Clone, Copy)]
pub(super) enum Class {
    /// `keelson serve` has the flag under the same name.
    Same,
    /// The flag is translated into flags of `keelson serve`.
    Own(TranslatedFlag),
    /// The flag is accepted without effect. The reason is logged.
    Idle(&'static str),
    /// These values change nothing. Others are rejected with this reason, since the server would be less strict than
    /// requested.
    Only(&'static [&'static str], &'static str),
}

use Class::{Idle, Only, Same};
use Form::{Duration, File, List, Number, Switch, Text};

const ETCD: &str = "keelson's etcd client is configured in --store";
const KUBELET: &str = "logs and sessions have no time limit";
const LIMITS: &str = "keelson has its own limits for requests and connections";
const LOG: &str = "keelson has its own log format";
const METRICS: &str = "all metrics are always served";
const CACHE: &str = "reads are always served from a cache";
const VERSIONS: &str = "the server behaves as one release";
const PROFILING: &str = "profiles are of processor time and memory, by HTTPS";

const fn row(name: &'static str, form: Form, class: Class) -> Flag {
    Flag { name, form, class }
}

const fn own(name: &'static str, form: Form, own: TranslatedFlag) -> Flag {
    Flag { name, form, class: Class::Own(own) }
}

/// All flags, in alphabetical order.
pub(super) static FLAGS: [Flag; 174] = [
    row("admission-control", List, Idle("it is deprecated in favour of --enable-admission-plugins")),
    row("admission-control-config-file", File, Same),
    row("advertise-address", Text, Same),
    row("aggregator-reject-forwarding-redirect", Switch, Only(&["true"], "redirects are never followed")),
    row("allow-metric-labels", List, Idle(METRICS)),
    row("allow-metric-labels-manifest", Text, Idle(METRICS)),
    row("allow-privileged", Switch, Same),
    row("anonymous-auth", Switch, Same),
    row("api-audiences", List, Same),
    row("audit-log-batch-buffer-size", Number, Same),
    row("audit-log-batch-max-size", Number, Same),
    row("audit-log-batch-max-wait", Duration, Same),
    row("audit-log-batch-throttle-burst", Number, Same),
    row("audit-log-batch-throttle-enable", Switch, Same),
    row("audit-log-batch-throttle-qps", Number, Same),
    row("audit-log-compress", Switch, Same),
    row("audit-log-format", Text, Same),
    row("audit-log-maxage", Number, Same),
    row("audit-log-maxbackup", Number, Same),
    row("audit-log-maxsize", Number, Same),
    row("audit-log-mode", Text, Same),
    row("audit-log-path", File, Same),
    row("audit-log-truncate-enabled", Switch, Same),
    row("audit-log-truncate-max-batch-size", Number, Same),
    row("audit-log-truncate-max-event-size", Number, Same),
    row("audit-log-version", Text, Only(&["audit.k8s.io/v1"], "events have the version audit.k8s.io/v1")),
    row("audit-policy-file", File, Same),
    row("audit-webhook-batch-buffer-size", Number, Same),
    row("audit-webhook-batch-max-size", Number, Same),
    row("audit-webhook-batch-max-wait", Duration, Same),
    row("audit-webhook-batch-throttle-burst", Number, Same),
    row("audit-webhook-batch-throttle-enable", Switch, Same),
    row("audit-webhook-batch-throttle-qps", Number, Same),
    row("audit-webhook-config-file", File, Same),
    row("audit-webhook-initial-backoff", Duration, Same),
    row("audit-webhook-mode", Text, Same),
    row("audit-webhook-truncate-enabled", Switch, Same),
    row("audit-webhook-truncate-max-batch-size", Number, Same),
    row("audit-webhook-truncate-max-event-size", Number, Same),
    row("audit-webhook-version", Text, Only(&["audit.k8s.io/v1"], "events have the version audit.k8s.io/v1")),
    row("authentication-config", File, Same),
    row("authentication-token-webhook-cache-ttl", Duration, Same),
    row("authentication-token-webhook-config-file", File, Same),
    row("authentication-token-webhook-version", Text, Same),
    row("authorization-config", File, Same),
    own("authorization-mode", List, TranslatedFlag::AuthorizationMode),
    row("authorization-policy-file", File, Same),
    row("authorization-webhook-cache-authorized-ttl", Duration, Same),
    row("authorization-webhook-cache-unauthorized-ttl", Duration, Same),
    row("authorization-webhook-config-file", File, Same),
    row("authorization-webhook-version", Text, Same),
    own("bind-address", Text, TranslatedFlag::BindAddress),
    own("cert-dir", Text, TranslatedFlag::CertDir),
    row("client-ca-file", File, Same),
    row("contention-profiling", Switch, Idle(PROFILING)),
    // Not a flag of kube-apiserver, whose controllers are separate programs.
    own("controllers", List, TranslatedFlag::Controllers),
    row("coordinated-leadership-lease-duration", Duration, Same),
    row("coordinated-leadership-renew-deadline", Duration, Same),
    row("coordinated-leadership-retry-period", Duration, Same),
    row("cors-allowed-origins", List, Same),
    row("debug-socket-path", Text, Idle(PROFILING)),
    row("default-not-ready-toleration-seconds", Number, Same),
    row("default-unreachable-toleration-seconds", Number, Same),
    row("delete-collection-workers", Number, Idle(LIMITS)),
    row("disable-admission-plugins", List, Same),
    row("disable-http2-serving", Switch, Same),
    row("disabled-metrics", List, Idle(METRICS)),
    row("egress-selector-config-file", File, Same),
    row("emulated-version", List, Same),
    row("emulation-forward-compatible", Switch, Idle(VERSIONS)),
    row("enable-admission-plugins", List, Same),
    row("enable-aggregator-routing", Switch, Idle("services lead to their endpoints")),
    row("enable-bootstrap-token-auth", Switch, Same),
    row("enable-garbage-collector", Switch, Idle("--controllers says whether garbage is collected")),
    row("enable-logs-handler", Switch, Idle("keelson serves no host logs")),
    row("enable-priority-and-fairness", Switch, Same),
    row("encryption-provider-config", File, Same),
    row("encryption-provider-config-automatic-reload", Switch, Same),
    row("endpoint-reconciler-type", Text, Same),
    own("etcd-cafile", Text, TranslatedFlag::EtcdCaFile),
    own("etcd-certfile", Text, TranslatedFlag::EtcdCertFile),
    row("etcd-compaction-interval", Duration, Idle(ETCD)),
    row("etcd-count-metric-poll-period", Duration, Idle(ETCD)),
    row("etcd-db-metric-poll-interval", Duration, Idle(ETCD)),
    row("etcd-healthcheck-timeout", Duration, Idle(ETCD)),
    own("etcd-keyfile", Text, TranslatedFlag::EtcdKeyFile),
    own("etcd-prefix", Text, TranslatedFlag::EtcdPrefix),
    row("etcd-readycheck-timeout", Duration, Idle(ETCD)),
    own("etcd-servers", List, TranslatedFlag::EtcdServers),
    row("etcd-servers-overrides", List, Only(&[""], "all resources are in one store")),
    row("event-ttl", Duration, Same),
    row("external-hostname", File, Same),
    own("feature-gates", List, TranslatedFlag::FeatureGates),
    row("goaway-chance", Number, Same),
    own("help", Switch, TranslatedFlag::Help),
    row("http2-max-streams-per-connection", Number, Same),
    row("kubelet-certificate-authority", File, Same),
    row("kubelet-client-certificate", File, Same),
    row("kubelet-client-key", File, Same),
    row("kubelet-preferred-address-types", List, Same),
    row("kubelet-timeout", Duration, Idle(KUBELET)),
    row("kubernetes-service-node-port", Number, Idle("the service kubernetes has no node port")),
    row("lease-reuse-duration-seconds", Number, Idle(ETCD)),
    row("livez-grace-period", Duration, Idle("/livez succeeds from the start")),
    row("log-flush-frequency", Duration, Idle(LOG)),
    row("log-json-info-buffer-size", Text, Idle(LOG)),
    row("log-json-split-stream", Switch, Idle(LOG)),
    row("log-text-info-buffer-size", Text, Idle(LOG)),
    row("log-text-split-stream", Switch, Idle(LOG)),
    own("logging-format", Text, TranslatedFlag::LoggingFormat),
    row("max-connection-bytes-per-sec", Number, Idle(LIMITS)),
    row("max-mutating-requests-inflight", Number, Same),
    row("max-requests-inflight", Number, Same),
    row("min-compatibility-version", List, Idle(VERSIONS)),
    row("min-request-timeout", Number, Same),
    row("oidc-ca-file", File, Same),
    row("oidc-client-id", Text, Same),
    row("oidc-groups-claim", Text, Same),
    row("oidc-groups-prefix", Text, Same),
    row("oidc-issuer-url", Text, Same),
    row("oidc-required-claim", List, Same),
    row("oidc-signing-algs", List, Same),
    row("oidc-username-claim", Text, Same),
    row("oidc-username-prefix", Text, Same),
    row("peer-advertise-ip", Text, Same),
    row("peer-advertise-port", Number, Same),
    row("peer-ca-file", File, Same),
    row("permit-address-sharing", Switch, Idle("a port is never shared")),
    row("permit-port-sharing", Switch, Idle("a port is never shared")),
    row("profiling", Switch, Same),
    row("proxy-client-cert-file", File, Same),
    row("proxy-client-key-file", File, Same),
    row("request-timeout", Duration, Same),
    row("requestheader-allowed-names", List, Same),
    row("requestheader-client-ca-file", File, Same),
    row("requestheader-extra-headers-prefix", List, Same),
    row("requestheader-group-headers", List, Same),
    row("requestheader-uid-headers", List, Same),
    row("requestheader-username-headers", List, Same),
    row("runtime-config", List, Same),
    row("runtime-config-emulation-forward-compatible", Switch, Idle(VERSIONS)),
    own("secure-port", Number, TranslatedFlag::SecurePort),
    row("send-retry-after-while-not-ready-once", Switch, Idle("the server listens when it can answer")),
    row("service-account-extend-token-expiration", Switch, Same),
    row("service-account-issuer", Text, Same),
    row("service-account-jwks-uri", File, Same),
    row("service-account-key-file", List, Same),
    row("service-account-lookup", Switch, Only(&["true"], "deleted accounts have no valid tokens")),
    row("service-account-max-token-expiration", Duration, Same),
    row(
        "service-account-signing-endpoint",
        Text,
        Only(&[""], "tokens are signed with --service-account-signing-key-file"),
    ),
    row("service-account-signing-key-file", File, Same),
    own("service-cluster-ip-range", List, TranslatedFlag::ServiceRange),
    row("service-node-port-range", Text, Same),
    row("show-hidden-metrics-for-version", Text, Idle(METRICS)),
    row("shutdown-delay-duration", Duration, Same),
    row("shutdown-send-retry-after", Switch, Same),
    row("shutdown-watch-termination-grace-period", Duration, Same),
    row("storage-backend", Text, Only(&["", "etcd3"], "etcd3 is the only backend")),
    row("storage-initialization-timeout", Duration, Idle(ETCD)),
    row("storage-media-type", Text, Idle("the server chooses the encoding of stored objects")),
    row("strict-transport-security-directives", List, Same),
    own("tls-cert-file", Text, TranslatedFlag::TlsCertFile),
    row("tls-cipher-suites", List, Same),
    row("tls-curve-preferences", List, Same),
    row("tls-min-version", Text, Same),
    own("tls-private-key-file", Text, TranslatedFlag::TlsPrivateKeyFile),
    row("tls-sni-cert-key", List, Same),
    row("token-auth-file", File, Same),
    row("tracing-config-file", File, Same),
    own("v", Number, TranslatedFlag::Verbosity),
    own("version", Switch, TranslatedFlag::Version),
    row("vmodule", List, Idle(LOG)),
    row("watch-cache", Switch, Idle(CACHE)),
    row("watch-cache-sizes", List, Idle(CACHE)),
];

/// A flag of the command line with its value.
#[derive(Clone)]
pub(super) struct FlagValue {
    pub(super) flag: &'static Flag,
    pub(super) value: String,
}

/// Parses a command line without the name of the program.
///
/// # Errors
/// The error texts are pflag's.
pub(super) fn read(arguments: impl IntoIterator<Item = String>) -> Result<Vec<FlagValue>, String> {
    let mut arguments = arguments.into_iter();
    let mut given = Vec::new();
    while let Some(argument) = arguments.next() {
        let (name, value) = match (argument.strip_prefix("--"), argument.as_str()) {
            (_, "-h") => ("help", None),
            (_, "-v") => ("v", None),
            (None, short) if short.starts_with("-v") => {
                ("v", Some(short.trim_start_matches("-v").trim_start_matches('=')))
            }
            (None, short) if short.starts_with('-') => {
                return Err(format!("unknown shorthand flag: {:?} in {short}", &short[1..]));
            }
            (None | Some(""), other) => return Err(format!("unknown command {other:?} for \"kube-apiserver\"")),
            (Some(text), _) => text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value))),
        };
        let flag = FLAGS.iter().find(|flag| flag.name == name).ok_or_else(|| format!("unknown flag: --{name}"))?;
        let value = match (value, flag.form) {
            (Some(value), _) => value.to_owned(),
            (None, Switch) => "true".to_owned(),
            (None, Text | File | List | Number | Duration) => {
                arguments.next().ok_or_else(|| format!("flag needs an argument: --{name}"))?
            }
        };
        given.push(FlagValue { flag, value });
    }
    Ok(given)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory as _;

    use super::*;
    use crate::args::Args;

    const HEAD: &str = "\
# Flags of kube-apiserver

Generated from the table of flags by `cargo xtask docs --write`. A test fails when the page differs from it.

The program `kube-apiserver`, a link to `keelson`, and `keelson kube-apiserver` take these flags of kube-apiserver 1.36 and 1.37.
Other flags fail with kube-apiserver's text. The log names each accepted flag without effect once.

| class | meaning |
|---|---|
| works | the flag has kube-apiserver's effect |
| accepted | the flag has no effect, for this reason |
| limited | these values change nothing, and others are refused |

| flag | class | note |
|---|---|---|
";

    fn read_line(line: &str) -> Result<Vec<(&'static str, String)>, String> {
        let given = read(line.split_whitespace().map(str::to_owned))?;
        Ok(given.into_iter().map(|given| (given.flag.name, given.value)).collect())
    }

    #[test]
    fn the_table_has_each_flag_once_and_in_order() {
        assert!(FLAGS.is_sorted_by(|one, other| one.name < other.name));
    }

    #[test]
    fn a_flag_of_the_same_name_is_one_of_serve() {
        let command = Args::command();
        let serve = command.find_subcommand("serve").unwrap();
        let known: BTreeSet<_> = serve.get_arguments().filter_map(|arg| arg.get_long()).collect();
        for flag in FLAGS.iter().filter(|flag| matches!(flag.class, Same)) {
            assert!(known.contains(flag.name), "--{}", flag.name);
        }
    }

    /// The page `docs/reference/kube-apiserver-flags.md`. `KEELSON_UPDATE=1` writes it anew.
    #[test]
    fn the_reference_lists_each_flag_with_its_class() {
        use std::fmt::Write as _;

        let mut text = HEAD.to_owned();
        for flag in FLAGS.iter().filter(|flag| flag.name != "controllers") {
            let (class, note) = match flag.class {
                Same => ("works", "as described for `keelson serve`".to_owned()),
                Class::Own(_) => ("works", "translated".to_owned()),
                Idle(why) => ("accepted", why.to_owned()),
                Only(values, why) => {
                    let values: Vec<String> =
                        values.iter().filter(|value| !value.is_empty()).map(|value| format!("`{value}`")).collect();
                    let only =
                        if values.is_empty() { "refused".to_owned() } else { format!("only {}", values.join(", ")) };
                    ("limited", format!("{only}: {why}"))
                }
            };
            writeln!(text, "| `--{}` | {class} | {note} |", flag.name).unwrap();
        }
        let file =
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/kube-apiserver-flags.md");
        if std::env::var_os("KEELSON_UPDATE").is_some() {
            std::fs::write(&file, &text).unwrap();
        }
        let written = std::fs::read_to_string(&file).unwrap_or_default();
        assert!(written == text, "docs/reference/kube-apiserver-flags.md differs: KEELSON_UPDATE=1 writes it anew");
    }

    #[test]
    fn lines_are_read_as_pflag_reads_them() {
        let read = |line: &str| read_line(line).unwrap();
        assert_eq!(
            read("--secure-port=1 --allow-privileged --v 4"),
            [("secure-port", "1".to_owned()), ("allow-privileged", "true".to_owned()), ("v", "4".to_owned())]
        );
        assert_eq!(
            read("-v=2 -v3 --profiling=false -h")[1..],
            [("v", "3".to_owned()), ("profiling", "false".to_owned()), ("help", "true".to_owned())]
        );
        let refused = |line: &str| read_line(line).unwrap_err();
        assert_eq!(refused("--nosuch"), "unknown flag: --nosuch");
        assert_eq!(refused("--insecure-port=0"), "unknown flag: --insecure-port");
        assert_eq!(refused("--secure-port"), "flag needs an argument: --secure-port");
        assert_eq!(refused("start"), "unknown command \"start\" for \"kube-apiserver\"");
        assert!(refused("-x").starts_with("unknown shorthand flag"));
    }
}
