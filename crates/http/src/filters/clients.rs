//! The client that a request comes from, as its connection describes it.
//!
//! Requests that are answered by another pipeline come from a client without a certificate.

use std::any::Any;
use std::net::IpAddr;
use std::sync::Arc;

use keelson_access::{ClientIdentity, User};

/// The client that a request comes from.
pub trait ClientConnection: Send + Sync {
    /// The identity that the client's certificate proves.
    fn identity(&self) -> Option<Arc<ClientIdentity>>;

    /// Counts the connection for the user of a request on it, unless it already counts for a user. Returns false if the
    /// user has used its share of connections. The connection then counts for no user.
    fn is_of(&self, user: &User) -> bool;

    /// The client's IP address.
    fn address(&self) -> Option<IpAddr>;

    /// The guard of the connection's slot. A task that takes over an upgraded connection keeps it alive.
    fn held(&self) -> Arc<dyn Any + Send + Sync>;
}

/// A client whose certificate does not count.
pub struct WithoutCertificate<'c>(pub &'c dyn ClientConnection);

impl ClientConnection for WithoutCertificate<'_> {
    fn identity(&self) -> Option<Arc<ClientIdentity>> {
        None
    }

    fn is_of(&self, user: &User) -> bool {
        self.0.is_of(user)
    }

    fn address(&self) -> Option<IpAddr> {
        self.0.address()
    }

    fn held(&self) -> Arc<dyn Any + Send + Sync> {
        self.0.held()
    }
}
