//! Fault injection: another address of a server, whose proxy delays requests, rejects them and cuts connections.
//!
//! Requests to the server's own address are never affected. So a test sees the real state while its controller meets
//! faults. The proxy works with every form of a server, since it only forwards requests.

mod front;
mod rules;
mod watches;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kube::{Client, Config};

use self::front::Front;
use self::rules::Rules;
pub use self::rules::{Fault, InjectedFault};
use self::watches::{OpenWatches, WatchEnd};
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::keelson::Keelson;
use crate::user::User;

/// An address of a server at which a test can make requests fail.
///
/// ```
/// # use keelson_test::{Fault, Keelson};
/// # async fn a_test() -> Result<(), Box<dyn std::error::Error>> {
/// let server = Keelson::start().await?;
/// let faults = server.faults().await?;
/// let refused = faults.inject(Fault::internal_error().path("/version"))?;
/// assert!(faults.client().apiserver_version().await.is_err());
/// assert!(faults.client().apiserver_version().await.is_ok());
/// assert_eq!(refused.hits(), 1);
/// # Ok(()) }
/// # tokio::runtime::Runtime::new().unwrap().block_on(a_test()).unwrap();
/// ```
#[derive(Debug)]
pub struct Faults {
    endpoint: Endpoint,
    layer: Arc<Layer>,
    front: Front,
}

/// The state of the proxy, which its connections share.
#[derive(Debug, Default)]
pub(crate) struct Layer {
    rules: Rules,
    watches: OpenWatches,
}

impl Faults {
    pub(crate) async fn start(server: &Keelson) -> Result<Self, Error> {
        let layer = Arc::<Layer>::default();
        let front = Front::start(server.background().handle()?, layer.clone(), server.endpoint())?;
        let endpoint = front.endpoint_of(server.endpoint(), "keelson-admin").await?;
        Ok(Self { endpoint, layer, front })
    }

    /// The address of the proxy, `https://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        self.endpoint.url()
    }

    /// A client of the administrator whose requests are subject to the faults.
    ///
    /// # Panics
    /// Outside of a tokio runtime, to which each client is bound.
    pub fn client(&self) -> Client {
        self.endpoint.client()
    }

    /// The configuration of the client that [`client`](Self::client) returns.
    pub fn config(&self) -> Config {
        self.endpoint.config().clone()
    }

    /// The path of a kubeconfig of the administrator for this address. The first call writes the file.
    ///
    /// # Errors
    /// [`Error::Io`] when it can't be written.
    pub fn kubeconfig(&self) -> Result<PathBuf, Error> {
        self.endpoint.file().map(Path::to_owned)
    }

    /// The user at this address, subject to the faults.
    ///
    /// # Errors
    /// None except for unusable credentials, which a [`User`] does not have.
    pub async fn user(&self, user: &User) -> Result<User, Error> {
        Ok(User::at(user.name(), self.front.endpoint_of(user.endpoint(), user.name()).await?))
    }

    /// Adds a fault after the existing ones. A request is subject to all latencies that match it, and to the first
    /// other fault.
    ///
    /// # Errors
    /// [`Error::Argument`] for a pattern that can match nothing, [`Error::TooManyFaults`] if there are already 1,000 faults.
    pub fn inject(&self, fault: Fault) -> Result<InjectedFault, Error> {
        self.layer.rules.add(fault)
    }

    /// Removes all faults.
    pub fn clear(&self) {
        self.layer.rules.clear();
    }

    /// Cuts the open watches of a path, like a broken connection. Returns their number. See [`Fault::path`] for
    /// patterns.
    pub fn drop_watches(&self, path: &str) -> usize {
        self.layer.watches.cut(path, WatchEnd::Dropped)
    }

    /// Ends the open watches of a path with an ERROR event of code 410, like a server after a compaction. Returns their
    /// number.
    pub fn expire_watches(&self, path: &str) -> usize {
        self.layer.watches.cut(path, WatchEnd::Expired)
    }

    /// The number of open watches of a path.
    pub fn open_watches(&self, path: &str) -> usize {
        self.layer.watches.count(path)
    }
}
