//! Credentials of the server for one host, which are sent with each request.
//!
//! Credentials belong to the client for that host. Redirects are not followed, so no other host receives them.

use http::HeaderMap;

use crate::presented::ClientCertificate;

/// A client certificate and header fields; each may be missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// The certificate of the TLS connection.
    pub certificate: Option<ClientCertificate>,
    /// A token or a password, and the user to impersonate. Secret values are marked as sensitive.
    pub headers: HeaderMap,
}
