//! The flags of `user`: users with certificates of a running server.
//!
//! The commands are clients of the API.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as ClapArgs, Subcommand};
use keelson_meta::control_characters::acts;

use super::kinds::some_duration;

#[derive(Subcommand)]
pub(crate) enum User {
    /// Create a user: sign a certificate, bind a role if one is named, and write the kubeconfig of the user. Asks a
    /// running server.
    Create(UserCreate),
    /// List the users with certificates, the end of their certificates, and their roles. Asks a running server.
    List(UserList),
}

/// Settings of `user list`.
#[derive(ClapArgs)]
pub(crate) struct UserList {
    #[command(flatten)]
    pub(crate) administrator: Administrator,
}

/// The way of a command to the server.
#[derive(ClapArgs)]
pub(crate) struct Administrator {
    /// The kubeconfig of the server. By default the one in the server's data directory, or else the one in KUBECONFIG.
    #[arg(long)]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The data directory of the server.
    #[arg(long, env = "KEELSON_DATA_DIR", default_value = "keelson-data")]
    pub(crate) data_dir: PathBuf,
}

/// Settings of `user create`.
#[derive(ClapArgs)]
pub(crate) struct UserCreate {
    /// The name of the user.
    #[arg(value_parser = name)]
    pub(crate) name: String,
    /// A group of the user. May be repeated.
    #[arg(long = "group", value_parser = name)]
    pub(crate) groups: Vec<String>,
    /// The namespace of the kubeconfig and of the binding.
    #[arg(long)]
    pub(crate) namespace: Option<String>,
    /// A cluster role for the user, such as view, edit or admin: in the namespace, or in all namespaces without one.
    #[arg(long)]
    pub(crate) role: Option<String>,
    /// Bind the role in all namespaces, despite --namespace. Without either flag the command does so with a warning.
    #[arg(long, requires = "role")]
    pub(crate) all_namespaces: bool,
    /// The lifetime of the certificate (such as 720h); a year by default and at most.
    #[arg(long, value_parser = some_duration)]
    pub(crate) valid_for: Option<Duration>,
    /// The file to write; NAME.kubeconfig unless given. It must not exist.
    #[arg(long)]
    pub(crate) out: Option<PathBuf>,
    /// The URL at which the user reaches the server, such as https://api.example.org:6443; by default that of this command. The
    /// command warns if the server's certificate does not cover that name (serve --tls-san).
    #[arg(long)]
    pub(crate) server: Option<String>,
    #[command(flatten)]
    pub(crate) administrator: Administrator,
}

/// The name of a user or a group, in which nothing is hidden.
pub(super) fn name(text: &str) -> Result<String, String> {
    match text {
        "" => Err("it is empty".to_owned()),
        _ if text.contains(acts) => Err("it has control characters".to_owned()),
        _ => Ok(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_users_hide_nothing() {
        assert_eq!(name("night: shift \u{e4}"), Ok("night: shift \u{e4}".to_owned()));
        for bad in ["", "a\nb", "a\u{1b}[2J", "a\u{9b}", "a\u{202e}b", "\0"] {
            assert!(name(bad).is_err(), "{bad:?}");
        }
    }
}
