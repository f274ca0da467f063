//! Credentials for admission webhooks, by host. They are the users in the kubeconfig of the webhook plugins'
//! configuration.
//!
//! The name of a user is the host for its credentials. The kubeconfig and the files that it names are reloaded after
//! changes. If they are invalid, the previous version stays in force. The rules for names are kube-apiserver's.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use keelson_access::FileChanges;
use keelson_meta::host_port;
use keelson_meta::json::Value;
use keelson_outbound::Credentials;

use crate::document::ConfigurationError;
use crate::kubeconfig::{Kubeconfig, unusable};

/// The port that the name of a user may omit.
const DEFAULT_PORT: u16 = 443;
/// The name of the user for all hosts without a user of their own.
const EVERY_HOST: &str = "*";

/// The credentials of a kubeconfig, in their current version.
pub struct HostCredentials {
    file: PathBuf,
    current: ArcSwap<WebhookUsers>,
}

/// The users of one version of a kubeconfig.
#[derive(Debug, PartialEq, Eq)]
pub struct WebhookUsers {
    /// The kubeconfig and the files that it names.
    files: Vec<PathBuf>,
    by_name: BTreeMap<String, Credentials>,
    /// The user of the current context, for hosts without a user of their own.
    current: Option<String>,
}

impl HostCredentials {
    /// Reads a kubeconfig.
    ///
    /// # Errors
    /// The kubeconfig, or a file that it names, is invalid.
    pub fn of_file(file: &Path) -> Result<Self, ConfigurationError> {
        Ok(Self { file: file.to_owned(), current: ArcSwap::from_pointee(WebhookUsers::read(file)?) })
    }

    /// Returns the current users. The value is the same until a file changes.
    pub fn current(&self) -> Arc<WebhookUsers> {
        self.current.load_full()
    }

    /// Reloads the files after changes. Never returns.
    pub async fn follow(&self) {
        loop {
            let files = self.current().files.clone();
            let mut changes = FileChanges::of_all(files.clone()).await;
            // The files may have changed since the last read, and the kubeconfig may name other files now.
            self.read_again().await;
            if self.current().files == files {
                changes.changed().await;
            }
        }
    }

    async fn read_again(&self) {
        let file = self.file.clone();
        let read = keelson_supervision::spawn_blocking(move || WebhookUsers::read(&file)).await;
        match read.map_err(|error| ConfigurationError::Unusable(error.to_string())).and_then(|read| read) {
            Ok(same) if same == *self.current() => {}
            Ok(users) => {
                tracing::info!(file = %self.file.display(), "read the changed credentials of admission webhooks");
                self.current.store(Arc::new(users));
            }
            Err(error) => tracing::error!(%error, "the credentials of admission webhooks stay as they were"),
        }
    }
}

impl std::fmt::Debug for HostCredentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostCredentials").field("file", &self.file).finish_non_exhaustive()
    }
}

impl WebhookUsers {
    fn read(file: &Path) -> Result<Self, ConfigurationError> {
        let kubeconfig = Kubeconfig::read(file)?;
        let (mut files, mut by_name) = (vec![file.to_owned()], BTreeMap::new());
        for (name, user) in kubeconfig.users() {
            let credentials = kubeconfig.credentials(user);
            let credentials = credentials.map_err(|why| unusable(file, &format!("user {name:?}: {why}")))?;
            files.extend(kubeconfig.named_files(&Value::Null, user));
            // Like client-go, the first of several users with one name applies.
            by_name.entry(name.to_owned()).or_insert(credentials);
        }
        files.dedup();
        Ok(Self { files, by_name, current: kubeconfig.current_user().map(str::to_owned) })
    }

    /// Returns the credentials for a host and port. The first existing user applies: one with the name of the host, the
    /// longest matching `*.domain`, `*`, and the user of the current context. A name may omit the port 443.
    pub fn for_host(&self, host: &str, port: u16) -> Option<&Credentials> {
        let with_port = self.matching(&host_port(host, port));
        let without = || self.matching(host).filter(|_| port == DEFAULT_PORT);
        let current = || self.by_name.get(self.current.as_deref()?);
        with_port.or_else(without).or_else(|| self.by_name.get(EVERY_HOST)).or_else(current)
    }

    fn matching(&self, target: &str) -> Option<&Credentials> {
        let domains = target.match_indices('.').map(|(dot, _)| format!("*{}", &target[dot..]));
        self.by_name.get(target).or_else(|| domains.filter_map(|domain| self.by_name.get(&domain)).next())
    }
}

#[cfg(test)]
mod tests {
    use http::header::AUTHORIZATION;

    use super::*;

    fn users(text: &str) -> Result<WebhookUsers, String> {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("kubeconfig");
        std::fs::write(&file, text).unwrap();
        std::fs::write(directory.path().join("token"), "from-file\n").unwrap();
        WebhookUsers::read(&file).map_err(|error| error.to_string())
    }

    fn token<'u>(users: &'u WebhookUsers, host: &str, port: u16) -> Option<&'u str> {
        users.for_host(host, port)?.headers.get(AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ")
    }

    #[test]
    fn credentials_are_for_the_host_that_a_user_is_named_after() {
        let users = users(
            "users:\n\
             - {name: a.example.com, user: {token: a}}\n\
             - {name: 'a.example.com:8443', user: {token: a-8443}}\n\
             - {name: '*.example.com', user: {token: domain}}\n\
             - {name: '*.sub.example.com', user: {token: sub}}\n\
             - {name: '*.example.org:9443', user: {token: port}}\n\
             - {name: hook.default.svc, user: {tokenFile: token}}\n\
             - {name: '::1', user: {token: six}}\n\
             - {name: '127.0.0.1:9443', user: {token: four}}\n\
             - {name: nothing.example.com, user: {}}\n\
             - {name: a.example.com, user: {token: second}}\n",
        )
        .unwrap();
        let check = |host: &str, port: u16, expected: Option<&str>| {
            assert_eq!(token(&users, host, port), expected, "{host}:{port}");
        };
        check("a.example.com", 443, Some("a"));
        check("a.example.com", 8443, Some("a-8443"));
        check("a.example.com", 8444, None);
        check("b.example.com", 443, Some("domain"));
        check("c.b.example.com", 443, Some("domain"));
        check("c.sub.example.com", 443, Some("sub"));
        check("b.example.org", 9443, Some("port"));
        check("b.example.org", 443, None);
        check("hook.default.svc", 443, Some("from-file"));
        check("::1", 443, Some("six"));
        check("127.0.0.1", 9443, Some("four"));
        // Hosts with similar names get no credentials.
        for host in ["example.com", "evilexample.com", "a.example.com.evil.org", "HOOK.default.svc", "a.example.com."] {
            check(host, 443, None);
        }
        check("127.0.0.1", 9444, None);
        check("nothing.example.com", 443, None);
    }

    #[test]
    fn hosts_without_a_user_get_the_star_or_context_user() {
        let text = "current-context: c\ncontexts: [{name: c, context: {user: u}}]\n\
                    users: [{name: u, user: {token: context}}, {name: h, user: {token: h}}]\n";
        let by_context = users(text).unwrap();
        assert_eq!((token(&by_context, "x", 443), token(&by_context, "h", 443)), (Some("context"), Some("h")));
        let by_star = users(&text.replace("[{name: u,", "[{name: '*', user: {token: star}}, {name: u,")).unwrap();
        assert_eq!((token(&by_star, "x", 443), token(&by_star, "h", 443)), (Some("star"), Some("h")));
        assert_eq!(
            token(&users("current-context: c\nusers: [{name: u, user: {token: t}}]\n").unwrap(), "x", 443),
            None
        );
    }

    #[test]
    fn unusable_users_are_named_without_their_secrets() {
        let error = users("users: [{name: h, user: {exec: {command: x}}}]\n").unwrap_err();
        assert!(error.ends_with("user \"h\": credentials by exec are not supported"), "{error}");
        let error = users("users: [{name: h, user: {tokenFile: missing}}]\n").unwrap_err();
        assert!(error.contains("user \"h\": "), "{error}");
        let secret =
            users("users: [{name: h, user: {token: s3cret, as: ann, as-groups: [g], as-user-extra: {'a/b': [v]}}}]\n");
        let secret = secret.unwrap();
        assert!(!format!("{secret:?}").contains("s3cret"));
        let headers = &secret.for_host("h", 443).unwrap().headers;
        let field = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        assert_eq!((field("impersonate-user"), field("impersonate-group")), (Some("ann"), Some("g")));
        assert_eq!(field("impersonate-extra-a%2fb"), Some("v"));
    }
}
