//! The errors of PostgreSQL, and their meaning for a call.
//!
//! The SQLSTATE determines the meaning. The most important question is whether a group may have been committed. If that
//! is unknown, `unknown` finds the outcome.

use keelson_storage::StoreError;
use tokio_postgres::error::{DbError, SqlState};

/// The reason for which a store on PostgreSQL can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum PostgresError {
    /// The URL has an invalid value or an unknown parameter.
    #[error("the URL of the PostgreSQL store: {0}")]
    Url(String),
    /// A certificate or a key can't be used.
    #[error("{file}: {reason}")]
    Certificate {
        /// The file.
        file: String,
        /// The reason.
        reason: String,
    },
    /// The password file can't be read.
    #[error("{}: {source}", path.display())]
    Password {
        /// The file.
        path: std::path::PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The server does not answer, or refuses the connection.
    #[error("cannot connect to PostgreSQL: {0}")]
    Connect(String),
    /// A newer keelson wrote the tables in a format that this one does not know.
    #[error(
        "the database has storage format {found}, and this keelson knows formats up to {known}: start the newer keelson \
         that wrote it"
    )]
    NewerFormat {
        /// The format of the tables.
        found: i32,
        /// The newest format that this release knows.
        known: i32,
    },
    /// A store had to exist, and the database has none.
    #[error("there is no keelson store in the database: restore a backup of it")]
    NoStore,
    /// The encoding of the database can't represent every name.
    #[error("the database's encoding is {0}, and names need UTF8: create it with ENCODING 'UTF8' TEMPLATE template0")]
    Encoding(String),
    /// Rows of the history are missing.
    #[error("{0}")]
    Lost(String),
    /// A statement failed.
    #[error("PostgreSQL: {0}")]
    Statement(String),
}

impl From<PostgresError> for StoreError {
    fn from(error: PostgresError) -> Self {
        match error {
            PostgresError::Connect(_) | PostgresError::Statement(_) => Self::Unavailable(error.to_string()),
            PostgresError::Url(_)
            | PostgresError::Certificate { .. }
            | PostgresError::Password { .. }
            | PostgresError::NewerFormat { .. }
            | PostgresError::NoStore
            | PostgresError::Lost(_)
            | PostgresError::Encoding(_) => Self::Corrupt(error.to_string()),
        }
    }
}

/// The error code of our functions if the incarnation differs from the caller's.
const EXCHANGED: &str = "KL001";

/// The meaning of a failed statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// The statement had no effect, and may succeed if it is repeated at once: a deadlock, a serialization failure.
    Again,
    /// The statement had no effect, and all statements on this connection will fail: the server has become a replica.
    Elsewhere,
    /// The connection is broken. The outcome of the statement is unknown.
    Lost,
    /// The database has another history than when this store was opened.
    Exchanged,
    /// The statement had no effect, since one of our functions is missing. The next session creates it.
    Incomplete,
    /// The statement had no effect, since the disk of the server is full.
    Full,
    /// The statement had no effect, since its data can't be stored. For example, a path is too long.
    Unfit,
    /// The statement had no effect, for the reason in the server's message.
    Refused,
}

pub(crate) fn meaning(error: &tokio_postgres::Error) -> Meaning {
    let Some(code) = error.code() else { return Meaning::Lost };
    match code {
        &SqlState::T_R_SERIALIZATION_FAILURE | &SqlState::T_R_DEADLOCK_DETECTED => Meaning::Again,
        &SqlState::READ_ONLY_SQL_TRANSACTION => Meaning::Elsewhere,
        &SqlState::DISK_FULL => Meaning::Full,
        // The server is shutting down, or must end this connection. The commit may have happened before.
        &SqlState::ADMIN_SHUTDOWN | &SqlState::CRASH_SHUTDOWN | &SqlState::CANNOT_CONNECT_NOW => Meaning::Lost,
        &SqlState::IDLE_SESSION_TIMEOUT | &SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT => Meaning::Lost,
        &SqlState::UNDEFINED_FUNCTION => Meaning::Incomplete,
        code if code.code() == EXCHANGED => Meaning::Exchanged,
        // The first two characters are the class.
        code => match code.code().get(..2) {
            Some("08") => Meaning::Lost,
            // Data exceptions, violated constraints, exceeded limits of the program.
            Some("22" | "23" | "54") => Meaning::Unfit,
            _ => Meaning::Refused,
        },
    }
}

/// The store error of a failed statement.
pub(crate) fn store_error(error: &tokio_postgres::Error) -> StoreError {
    match meaning(error) {
        Meaning::Exchanged => exchanged(),
        Meaning::Full => {
            StoreError::Full(format!("PostgreSQL has none on its disk ({}); make room there", text(error)))
        }
        Meaning::Again
        | Meaning::Elsewhere
        | Meaning::Lost
        | Meaning::Incomplete
        | Meaning::Unfit
        | Meaning::Refused => {
            if error.code() == Some(&SqlState::PROGRAM_LIMIT_EXCEEDED) {
                return StoreError::Unstorable(format!(
                    "PostgreSQL indexes keys of about 2,600 bytes ({})",
                    message(error)
                ));
            }
            let damaged = [SqlState::DATA_CORRUPTED, SqlState::INDEX_CORRUPTED];
            let text = text(error);
            if error.code().is_some_and(|code| damaged.contains(code)) {
                StoreError::Corrupt(text)
            } else {
                StoreError::Unavailable(text)
            }
        }
    }
}

/// A hint for the operator if the error is a failed login.
pub(crate) fn login_hint(error: &tokio_postgres::Error) -> Option<&'static str> {
    let is_missing = lacks_password(error);
    let is_refused = error
        .code()
        .is_some_and(|code| [SqlState::INVALID_PASSWORD, SqlState::INVALID_AUTHORIZATION_SPECIFICATION].contains(code));
    (is_missing || is_refused).then_some(
        "the user and the password come from the URL, a password also from --store-password-file, PGPASSWORD or PGPASSFILE",
    )
}

/// Returns true if the server requires a password and the settings have none.
pub(crate) fn lacks_password(error: &tokio_postgres::Error) -> bool {
    std::error::Error::source(error).is_some_and(|source| source.to_string() == "password missing")
}

/// The server's message without its hint, for clients.
fn message(error: &tokio_postgres::Error) -> String {
    error.as_db_error().map_or_else(|| error.to_string(), |error| error.message().to_owned())
}

/// The whole message. The crate's own text lacks the server's message.
pub(crate) fn text(error: &tokio_postgres::Error) -> String {
    let said = |said: &DbError| match said.hint() {
        Some(hint) => format!("{} ({hint})", said.message()),
        None => said.message().to_owned(),
    };
    let source = || std::error::Error::source(error).map(|source| format!("{error}: {source}"));
    error.as_db_error().map(said).or_else(source).unwrap_or_else(|| error.to_string())
}

/// The error of a call that had no effect, since the history of the database was exchanged.
pub(crate) fn exchanged() -> StoreError {
    StoreError::Unavailable(
        "the history in the database was exchanged; nothing was done, and a retry may help".to_owned(),
    )
}

/// The reason for which a query has no valid result.
#[derive(Debug)]
pub(crate) enum QueryFault {
    /// The query failed.
    Sql(tokio_postgres::Error),
    /// The result, or the server, can't be trusted, for the given reason. A new session may lead to a valid result.
    Doubt(String),
    /// The database is not in the required state, and an operator has to act. Holds the reason.
    Unready(String),
    /// No server accepts writes, and there is no read-only primary to use. Holds the reason.
    ReadOnly(String),
}

impl std::fmt::Display for QueryFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Sql(error) => f.write_str(&text(error)),
            Self::Doubt(why) | Self::Unready(why) | Self::ReadOnly(why) => f.write_str(why),
        }
    }
}

impl From<tokio_postgres::Error> for QueryFault {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Sql(error)
    }
}

pub(crate) fn stopped() -> StoreError {
    StoreError::Unavailable("the store has been closed".to_owned())
}

/// The error of a commit whose result was never received.
pub(crate) fn unheard() -> StoreError {
    StoreError::Unknown("PostgreSQL did not say in time what it became".to_owned())
}
