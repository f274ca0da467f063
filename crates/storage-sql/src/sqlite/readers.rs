//! The connections that read.
//!
//! On disk, each read uses one of a few connections and runs on Tokio's blocking threads. In memory there is one
//! connection for all reads and writes, and a read waits for the end of the writer's group.

use std::sync::Arc;

use keelson_storage::StoreError;
use parking_lot::Mutex;
use rusqlite::Connection;
use tokio::sync::Semaphore;

use crate::sqlite::error::{stopped, store_error};

/// The connections for reads.
pub(crate) enum Readers {
    /// Separate connections.
    Pool {
        /// The unused connections. There are never fewer than free permits, until the pool is closed.
        idle: Mutex<Vec<Connection>>,
        /// One permit for each connection.
        permits: Arc<Semaphore>,
        /// The number of connections.
        connections: usize,
    },
    /// The connection of the writer.
    Shared {
        /// The only connection.
        connection: Arc<Mutex<Connection>>,
        /// Limits the readers that wait for the connection, so that they do not occupy all of Tokio's blocking threads.
        permits: Arc<Semaphore>,
    },
}

impl Readers {
    pub(crate) fn pool(connections: Vec<Connection>) -> Self {
        let permits = Arc::new(Semaphore::new(connections.len()));
        Self::Pool { connections: connections.len(), idle: Mutex::new(connections), permits }
    }

    pub(crate) fn shared(connection: Arc<Mutex<Connection>>) -> Self {
        Self::Shared { connection, permits: Arc::new(Semaphore::new(1)) }
    }

    /// Runs a read on a connection.
    pub(crate) async fn read<T, F>(self: &Arc<Self>, read: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        let permit = self.permits().clone().acquire_owned().await.map_err(|_| stopped())?;
        let readers = self.clone();
        let reading = tokio::task::spawn_blocking(move || {
            let outcome = readers.read_now(read);
            drop(permit);
            outcome
        });
        reading.await.map_err(|error| StoreError::Unavailable(format!("a read has failed: {error}")))?
    }

    fn read_now<T>(&self, read: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, StoreError> {
        match self {
            Self::Shared { connection, .. } => read(&connection.lock()),
            Self::Pool { idle, permits, .. } => {
                let connection = idle.lock().pop().ok_or_else(stopped)?;
                let outcome = read(&connection);
                if !permits.is_closed() {
                    idle.lock().push(connection);
                }
                outcome
            }
        }
        .map_err(|error| store_error(&error))
    }

    /// The number of concurrent reads.
    pub(crate) const fn connections(&self) -> usize {
        match self {
            Self::Pool { connections, .. } => *connections,
            Self::Shared { .. } => 1,
        }
    }

    /// Closes the connections. Waiting and later reads fail.
    pub(crate) fn close(&self) {
        self.permits().close();
        if let Self::Pool { idle, .. } = self {
            idle.lock().clear();
        }
    }

    const fn permits(&self) -> &Arc<Semaphore> {
        match self {
            Self::Pool { permits, .. } | Self::Shared { permits, .. } => permits,
        }
    }
}
