//! The help of `keelson serve`: the flags of a first server by `--help`, and all flags by topic by `--help-all`.
//!
//! Short help and full help come from the same definition. Flags that the short help omits are still accepted.

use clap::Command;

/// The command whose flags have topics.
pub(super) const COMMAND: &str = "serve";
/// The flag that prints all flags.
pub(super) const ALL: &str = "--help-all";

/// The flags of `--help`: those of a first server, and those that most set-ups need.
const BRIEF: [&str; 21] = [
    "advertise-address",
    "authorization-mode",
    "bind",
    "client-ca-file",
    "config",
    "console",
    "controllers",
    "data-dir",
    "ephemeral",
    "feature-gates",
    "help-all",
    "history",
    "log-format",
    "ready-file",
    "runtime-config",
    "service-cluster-ip-range",
    "store",
    "tls-cert-file",
    "tls-private-key-file",
    "tls-san",
    "v",
];

/// The topics, each with the beginnings of its flags. The first topic with such a beginning counts.
const TOPICS: [(&str, &[&str]); 14] = [
    ("Audit", &["audit-"]),
    (
        "Authentication",
        &[
            "anonymous-auth",
            "api-audiences",
            "authentication-",
            "client-ca-file",
            "enable-bootstrap-token-auth",
            "oidc-",
            "requestheader-",
            "service-account-",
            "token-auth-file",
        ],
    ),
    ("Authorization", &["authorization-"]),
    (
        "Admission and pods",
        &["admission-", "allow-privileged", "default-", "disable-admission-plugins", "enable-admission-plugins"],
    ),
    (
        "Store",
        &[
            "accept-loss",
            "encryption-",
            "event-ttl",
            "history",
            "max-object-bytes",
            "skip-unreadable",
            "storage-version",
            "store",
            "unsafe-no-fsync",
        ],
    ),
    (
        "Port and TLS",
        &[
            "advertise-address",
            "bind",
            "cors-",
            "disable-http2",
            "external-hostname",
            "http2-",
            "strict-transport-",
            "tls-",
        ],
    ),
    (
        "Requests",
        &[
            "cache-memory",
            "cache-check-interval",
            "chunks-for-",
            "enable-priority-",
            "index",
            "limit-at-any-version",
            "max-mutating-",
            "max-requests-",
            "min-request-timeout",
            "no-chunking",
            "request-timeout",
            "token-key-file",
        ],
    ),
    ("Stop", &["exit-with-parent", "goaway-chance", "shutdown-"]),
    ("Several servers", &["allow-other-keys", "identity-lease", "peer-", "server-id", "shared-keys-dir"]),
    ("Other servers and nodes", &["egress-", "kubelet-", "proxy-", "service-route"]),
    ("Services", &["endpoint-reconciler-type", "service-cluster-ip-range", "service-node-port-range"]),
    ("APIs and controllers", &["controllers", "coordinated-", "emulated-version", "feature-gates", "runtime-config"]),
    ("Log, traces and profiles", &["log-", "profiling", "tracing-", "v"]),
    (
        "Start",
        &["config", "console", "data-dir", "ephemeral", "help-all", "max-forks", "output", "ready-file", "threads"],
    ),
];

/// Gives each flag of a command its topic.
pub(super) fn by_topic(command: Command) -> Command {
    command.mut_args(|arg| {
        let topic = arg.get_long().and_then(topic);
        match topic {
            Some(topic) => arg.help_heading(topic),
            None => arg,
        }
    })
}

/// Leaves all flags out of the help that are not those of a first server.
pub(super) fn brief(command: Command) -> Command {
    let command = command.mut_args(|arg| {
        let is_brief = arg.get_long().is_none_or(|long| BRIEF.contains(&long) || long == "help");
        arg.hide(!is_brief)
    });
    command.after_help("keelson serve --help-all shows all flags, by topic.")
}

fn topic(flag: &str) -> Option<&'static str> {
    let is_of = |begins: &&[&str]| {
        begins.iter().any(|begin| {
            flag == *begin
                || begin.ends_with('-') && flag.starts_with(begin)
                || begin.len() > 1 && flag.starts_with(&format!("{begin}-"))
        })
    };
    TOPICS.iter().find(|(_, begins)| is_of(begins)).map(|(topic, _)| *topic)
}

#[cfg(test)]
mod tests {
    use super::super::Args;
    use super::*;

    fn help(line: &[&str]) -> String {
        let error = Args::read(["keelson", "serve"].iter().chain(line)).err().expect("help is no command");
        assert_eq!(error.exit_code(), 0, "{line:?}");
        error.to_string()
    }

    #[test]
    fn every_flag_has_a_topic_and_every_topic_a_flag() {
        let command = Args::serve_command();
        let flags: Vec<&str> = command.get_arguments().filter_map(|arg| arg.get_long()).collect();
        for flag in &flags {
            assert!(topic(flag).is_some(), "--{flag} has no topic");
        }
        for flag in BRIEF {
            assert!(flags.contains(&flag), "--{flag}");
        }
        for (name, begins) in TOPICS {
            for begin in begins {
                assert!(
                    flags.iter().any(|flag| flag.starts_with(begin) && topic(flag) == Some(name)),
                    "{name}: {begin}"
                );
            }
        }
    }

    #[test]
    fn the_help_is_short_and_help_all_has_all_flags_by_topic() {
        let (short, long) = (help(&["--help"]), help(&["--help-all"]));
        for flag in ["--data-dir", "--ephemeral", "--help-all"] {
            assert!(short.contains(flag) && long.contains(flag), "{flag}");
        }
        for flag in ["--goaway-chance", "--audit-webhook-batch-throttle-qps", "--oidc-ca-file"] {
            assert!(!short.contains(flag) && long.contains(flag), "{flag}");
        }
        for (topic, _) in TOPICS {
            assert!(long.contains(&format!("\n{topic}:\n")), "{topic}");
        }
        assert!(help(&["--ephemeral", "--help-all"]) == long, "beside other flags");
        assert!(short.lines().count() < 200 && short.contains("keelson serve --help-all shows all flags"));
    }

    #[test]
    fn flags_outside_of_the_short_help_are_read() {
        assert!(Args::read(["keelson", "serve", "--goaway-chance=0.01"]).is_ok());
    }
}
