//! A client as authorization sees it.
//!
//! The names of groups and of users with a meaning of their own are upstream's. How a client is found to be one of them is in
//! `authenticate` and `token`.

use std::collections::BTreeMap;

/// The group whose members may do anything.
pub const MASTERS: &str = "system:masters";
/// The group of every client that proved who it is.
pub const AUTHENTICATED: &str = "system:authenticated";
/// The group of clients that did not.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The group of every service account.
pub const SERVICE_ACCOUNTS: &str = "system:serviceaccounts";
/// The name of clients that did not prove who they are.
pub const ANONYMOUS: &str = "system:anonymous";
/// Under which key it is told by which credential a user proved who it is.
pub const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";
/// The name of the server itself.
pub const API_SERVER: &str = "system:apiserver";

/// Who makes a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// The name that rules and audit records use.
    pub name: String,
    /// A name that is never given to another user, if the authenticator knows one.
    pub uid: Option<String>,
    /// The groups the user belongs to.
    pub groups: Vec<String>,
    /// What else the authenticator knows.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// A client without credentials.
    pub fn anonymous() -> Self {
        Self { name: ANONYMOUS.to_owned(), groups: vec![UNAUTHENTICATED.to_owned()], ..Self::default() }
    }

    /// True for a client without credentials. Allocates nothing: each request is compared.
    pub fn is_anonymous(&self) -> bool {
        let Self { name, uid, groups, extra } = self;
        name == ANONYMOUS && groups[..] == [UNAUTHENTICATED] && uid.is_none() && extra.is_empty()
    }

    /// The server itself, which may do anything.
    pub fn api_server() -> Self {
        let groups = [MASTERS, AUTHENTICATED].map(str::to_owned).to_vec();
        Self { name: API_SERVER.to_owned(), groups, ..Self::default() }
    }

    /// A service account, as its token says who it is.
    pub fn service_account(namespace: &str, account: &str) -> Self {
        let own = format!("{SERVICE_ACCOUNTS}:{namespace}");
        let groups = vec![SERVICE_ACCOUNTS.to_owned(), own, AUTHENTICATED.to_owned()];
        Self { name: format!("system:serviceaccount:{namespace}:{account}"), groups, ..Self::default() }
    }

    /// The same as one who has proved who he is. As upstream has it, that is not said of the anonymous user, nor of one of whom it was
    /// said whether he has.
    #[must_use]
    pub fn authenticated(mut self) -> Self {
        if self.name != ANONYMOUS && !self.is_in(AUTHENTICATED) && !self.is_in(UNAUTHENTICATED) {
            self.groups.push(AUTHENTICATED.to_owned());
        }
        self
    }

    /// Whether the user belongs to a group.
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|name| name == group)
    }
}
