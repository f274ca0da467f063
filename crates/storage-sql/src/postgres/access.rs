//! The choice among the servers of the URL. It prefers a server that accepts writes. If there is none, reads use a
//! read-only primary.
//!
//! A read-only primary has all acknowledged commits. A standby may lack some of them, so the store does not read from a
//! standby.

use std::io::ErrorKind;

use tokio_postgres::config::TargetSessionAttrs;
use tokio_postgres::{Client, Config};

use super::config::{alone, beginning_with};
use super::error::{QueryFault, text};
use super::session::{Connector, Driver};

/// The use of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The connection must be to a server that accepts writes.
    Write,
    /// The connection should be to a server that accepts writes. A read-only primary is the second choice.
    Read,
}

impl Connector {
    /// Connects and configures the connection, without preparing the store's statements.
    pub(crate) async fn connect(&self, purpose: Purpose) -> Result<(Client, Driver), QueryFault> {
        let settings = beginning_with(self.first_host(), &self.config);
        let error = match self.dial(&settings).await {
            Ok(connected) => return Ok(connected),
            Err(error) => error,
        };
        let is_read_only = refuses_writes(&error);
        if purpose == Purpose::Read && (is_read_only || settings.get_hosts().len() > 1) {
            match self.read_only_primary(&settings).await {
                Primary::Connected(client, driver) => return Ok((client, driver)),
                Primary::Standby => return Err(QueryFault::ReadOnly(standby(&text(&error)))),
                Primary::None => {}
            }
        }
        Err(if is_read_only { QueryFault::ReadOnly(text(&error)) } else { QueryFault::Sql(error) })
    }

    /// Searches for a read-only primary.
    async fn read_only_primary(&self, settings: &Config) -> Primary {
        let mut found = Primary::None;
        for host in 0..settings.get_hosts().len() {
            let mut only = alone(host, settings);
            only.target_session_attrs(TargetSessionAttrs::Any);
            let Ok((client, driver)) = self.dial(&only).await else { continue };
            match client.query_one("SELECT pg_is_in_recovery()", &[]).await.and_then(|row| row.try_get(0)) {
                Ok(false) => return Primary::Connected(client, driver),
                Ok(true) => found = Primary::Standby,
                Err(_) => {}
            }
        }
        found
    }
}

/// The result of the search for a primary.
enum Primary {
    Connected(Client, Driver),
    /// Only a standby was found.
    Standby,
    None,
}

fn standby(cause: &str) -> String {
    format!("{cause}: it is a standby, which may lack acknowledged writes, so it is not read")
}

/// Returns true if a server was reached and is read-only.
fn refuses_writes(error: &tokio_postgres::Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<std::io::Error>());
    source.is_some_and(|error| error.kind() == ErrorKind::PermissionDenied && error.raw_os_error().is_none())
}
