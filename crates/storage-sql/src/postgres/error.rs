//! The errors of PostgreSQL, and their meaning for a call.
//!
//! They are distinguished by SQLSTATE. What matters is whether a group may have been committed; `unknown` finds out where that is
//! not known.

use keelson_storage::StoreError;
use tokio_postgres::error::{DbError, SqlState};

/// The reason why a store on PostgreSQL cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum PostgresError {
    /// The URL says something that can't be, or that is not known.
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
    /// The file of the password can't be read.
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
    /// The tables were written by a newer keelson, in a form that this one does not know.
    #[error(
        "the database has storage format {found}, and this keelson knows formats up to {known}: start the newer keelson \
         that wrote it"
    )]
    NewerFormat {
        /// The format that the tables have.
        found: i32,
        /// The newest format that this code knows.
        known: i32,
    },
    /// There is no store where one was to be read.
    #[error("there is no keelson store in the database: restore a backup of it")]
    NoStore,
    /// The database can't hold every name.
    #[error("the database's encoding is {0}, and names need UTF8: create it with ENCODING 'UTF8' TEMPLATE template0")]
    Encoding(String),
    /// Rows are gone.
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

/// The code that our own functions raise when the incarnation is not the one the caller knows.
const EXCHANGED: &str = "KL001";

/// The meaning of a failed statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// Nothing happened, and the same statement may work at once: a deadlock, a serialisation failure.
    Again,
    /// Nothing happened, and nothing will on this connection: the server has become a replica.
    Elsewhere,
    /// The connection is gone. The outcome of the statement is unknown.
    Lost,
    /// The history is another than the one this store was opened on.
    Exchanged,
    /// Nothing happened, for one of our functions is not there. The next session makes it.
    Incomplete,
    /// Nothing happened, for the server has no room on its disk.
    Full,
    /// Nothing happened, for what was sent can't be stored: too long a path, say.
    Unfit,
    /// Nothing happened; the server says why.
    Refused,
}

pub(crate) fn meaning(error: &tokio_postgres::Error) -> Meaning {
    let Some(code) = error.code() else { return Meaning::Lost };
    match code {
        &SqlState::T_R_SERIALIZATION_FAILURE | &SqlState::T_R_DEADLOCK_DETECTED => Meaning::Again,
        &SqlState::READ_ONLY_SQL_TRANSACTION => Meaning::Elsewhere,
        &SqlState::DISK_FULL => Meaning::Full,
        // The server is going down, or must end this connection: the commit may have been before that.
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

/// A hint for the operator, if the error is a refused login.
pub(crate) fn login_hint(error: &tokio_postgres::Error) -> Option<&'static str> {
    let is_missing = lacks_password(error);
    let is_refused = error
        .code()
        .is_some_and(|code| [SqlState::INVALID_PASSWORD, SqlState::INVALID_AUTHORIZATION_SPECIFICATION].contains(code));
    (is_missing || is_refused).then_some(
        "the user and the password come from the URL, a password also from --store-password-file, PGPASSWORD or PGPASSFILE",
    )
}

/// Returns whether the server asks for a password and there is none.
pub(crate) fn lacks_password(error: &tokio_postgres::Error) -> bool {
    std::error::Error::source(error).is_some_and(|source| source.to_string() == "password missing")
}

/// The whole message: the crate's own text leaves out what the server said.
pub(crate) fn text(error: &tokio_postgres::Error) -> String {
    let said = |said: &DbError| match said.hint() {
        Some(hint) => format!("{} ({hint})", said.message()),
        None => said.message().to_owned(),
    };
    let source = || std::error::Error::source(error).map(|source| format!("{error}: {source}"));
    error.as_db_error().map(said).or_else(source).unwrap_or_else(|| error.to_string())
}

/// Nothing happened: what was asked was about a history that is no more.
pub(crate) fn exchanged() -> StoreError {
    StoreError::Unavailable(
        "the history in the database was exchanged; nothing was done, and a retry may help".to_owned(),
    )
}

/// The reason why a query has no valid result.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// It failed.
    Sql(tokio_postgres::Error),
    /// The answer, or the server it would come from, can't be believed: why. Another session may do better.
    Doubt(String),
    /// The database is not in its required state, and needs an operator: the reason.
    Unready(String),
    /// No server takes writes, and none that is read-only may be used: why.
    ReadOnly(String),
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Sql(error) => f.write_str(&text(error)),
            Self::Doubt(why) | Self::Unready(why) | Self::ReadOnly(why) => f.write_str(why),
        }
    }
}

impl From<tokio_postgres::Error> for Trouble {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Sql(error)
    }
}

pub(crate) fn stopped() -> StoreError {
    StoreError::Unavailable("the store has been closed".to_owned())
}

/// The error of a commit that was never answered.
pub(crate) fn unheard() -> StoreError {
    StoreError::Unknown("PostgreSQL did not say in time what it became".to_owned())
}
