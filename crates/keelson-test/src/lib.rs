//! Starts a Kubernetes API server for a test in one line.
//!
//! [`Keelson::start`] returns a server that is ready. It runs in the process of the test (feature `embedded`), or as a
//! child process (feature `process`). Dropping the handle ends the server, also when the test panics, and leaves no
//! process or file.
//!
//! ```
//! # async fn a_test() -> Result<(), Box<dyn std::error::Error>> {
//! let server = keelson_test::Keelson::start().await?;
//! let version = server.client().apiserver_version().await?;
//! assert_eq!(version.major, "1");
//! # Ok(()) }
//! # tokio::runtime::Runtime::new().unwrap().block_on(a_test()).unwrap();
//! ```

#[cfg(not(any(feature = "embedded", feature = "process")))]
compile_error!("keelson-test needs one of its features `embedded` and `process`");

mod background;
mod builder;
mod certificate_request;
mod clock;
mod definitions;
#[cfg(feature = "embedded")]
mod embedded;
mod endpoint;
mod error;
mod faults;
mod keelson;
mod namespace;
#[cfg(feature = "process")]
mod process;
mod user;
mod wait;

pub use builder::{Builder, Form};
pub use clock::Clock;
#[cfg(feature = "embedded")]
pub use embedded::Snapshot;
pub use error::Error;
pub use faults::{Fault, Faults, InjectedFault};
pub use keelson::Keelson;
pub use namespace::Namespace;
pub use user::{User, UserBuilder};
