//! The user of a request, for authorization.
//!
//! Names of special users and groups are upstream's. `authenticate` and `token` identify users.

use std::collections::BTreeMap;

/// The group whose members may do everything.
pub const MASTERS: &str = "system:masters";
/// The group of users that read metrics and health.
pub const MONITORING: &str = "system:monitoring";
/// The group of authenticated clients.
pub const AUTHENTICATED: &str = "system:authenticated";
/// The group of unauthenticated clients.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The group of all service accounts.
pub const SERVICE_ACCOUNTS: &str = "system:serviceaccounts";
/// The user name of unauthenticated clients.
pub const ANONYMOUS: &str = "system:anonymous";
/// The extra key with the id of the user's credential.
pub const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";
/// The prefix of the user names of service accounts.
const ACCOUNTS: &str = "system:serviceaccount:";
/// The namespace of the cluster's own service accounts.
const OWN_NAMESPACE: &str = "kube-system";
/// The user name of the server itself.
pub const API_SERVER: &str = "system:apiserver";

/// The user of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// The user name.
    pub name: String,
    /// An id that is never reused, if the authenticator has one.
    pub uid: Option<String>,
    /// The groups of the user.
    pub groups: Vec<String>,
    /// Further attributes from the authenticator.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// The user of a request without credentials.
    pub fn anonymous() -> Self {
        Self { name: ANONYMOUS.to_owned(), groups: vec![UNAUTHENTICATED.to_owned()], ..Self::default() }
    }

    /// Returns true for the user of a request without credentials. Allocates nothing, since it is called for each
    /// request.
    pub fn is_anonymous(&self) -> bool {
        let Self { name, uid, groups, extra } = self;
        name == ANONYMOUS && groups[..] == [UNAUTHENTICATED] && uid.is_none() && extra.is_empty()
    }

    /// The server itself, which may do everything.
    pub fn api_server() -> Self {
        let groups = [MASTERS, AUTHENTICATED].map(str::to_owned).to_vec();
        Self { name: API_SERVER.to_owned(), groups, ..Self::default() }
    }

    /// The user of a service account.
    pub fn service_account(namespace: &str, account: &str) -> Self {
        let own = format!("{SERVICE_ACCOUNTS}:{namespace}");
        let groups = vec![SERVICE_ACCOUNTS.to_owned(), own, AUTHENTICATED.to_owned()];
        Self { name: format!("system:serviceaccount:{namespace}:{account}"), groups, ..Self::default() }
    }

    /// Adds the group of authenticated users. Like upstream, it is not added for the anonymous user, or if the user is
    /// in `system:authenticated` or `system:unauthenticated` already.
    #[must_use]
    pub fn authenticated(mut self) -> Self {
        if self.name != ANONYMOUS && !self.is_in(AUTHENTICATED) && !self.is_in(UNAUTHENTICATED) {
            self.groups.push(AUTHENTICATED.to_owned());
        }
        self
    }

    /// The name under which the user has a share of common resources. The service accounts of a namespace have one share
    /// together, since a user with write access to it can create any number of them. Each account of `kube-system` has
    /// its own.
    pub fn share_name(&self) -> &str {
        let account = self.name.strip_prefix(ACCOUNTS).and_then(|name| name.split_once(':'));
        match account {
            Some((namespace, _)) if namespace != OWN_NAMESPACE => &self.name[..=ACCOUNTS.len() + namespace.len()],
            _ => &self.name,
        }
    }

    /// Returns true if the user belongs to a group.
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|name| name == group)
    }
}
