//! A file of static tokens and their users: `token,user,uid,"group1,group2"`; the groups are optional.
//!
//! The format is upstream's (`--token-auth-file`). Unlike upstream, the file is reloaded after changes. If it is
//! invalid then, the previous tokens stay. A file without tokens counts as invalid, since it may have been emptied by
//! accident.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::user::User;
use crate::watched_file::{Contents, FileError, FileReads, ParsedFile, read_bounded};

/// The largest accepted file in bytes: about 100,000 tokens.
const MOST_BYTES: u64 = 16 * 1024 * 1024;

/// The reason why a file of tokens is refused.
#[derive(Debug, thiserror::Error)]
pub enum StaticTokensError {
    /// The file cannot be read, or is too large.
    #[error(transparent)]
    File(#[from] FileError),
    /// A line is not a token with a user.
    #[error("{file}, line {line}: {fault}")]
    Malformed {
        /// The file.
        file: PathBuf,
        /// The number of the line, counted from 1.
        line: u64,
        /// The fault, without the token.
        fault: &'static str,
    },
    /// The file has no tokens. A file that was truncated or emptied by accident looks the same.
    #[error(
        "{0} holds no token: put its lines back, or remove --token-auth-file; to withdraw all tokens while the server runs, leave one line \
         with a token that no client has"
    )]
    Empty(PathBuf),
}

/// The users of the tokens in a file.
pub struct StaticTokens(ParsedFile<Users>);

/// Users by their tokens.
struct Users(HashMap<String, User>);

impl StaticTokens {
    /// Reads the file.
    ///
    /// # Errors
    /// The file cannot be read, a line is invalid, or there are no lines.
    pub fn read(file: &Path) -> Result<Self, StaticTokensError> {
        ParsedFile::read(file).map(Self)
    }

    /// The user of a token, if the file has it.
    pub fn user(&self, token: &str) -> Option<User> {
        self.0.current().0.get(token).cloned()
    }

    /// The counts of reloads.
    pub fn reads(&self) -> &FileReads {
        self.0.reads()
    }

    /// Reloads the file after changes. Never returns.
    pub async fn follow(self: Arc<Self>) {
        self.0.follow().await;
    }
}

impl Contents for Users {
    const NAME: &str = "tokens";
    type Error = StaticTokensError;

    fn read(file: &Path) -> Result<Self, StaticTokensError> {
        let users = users_in(file)?;
        if users.is_empty() { Err(StaticTokensError::Empty(file.to_owned())) } else { Ok(Self(users)) }
    }

    fn count(&self) -> usize {
        self.0.len()
    }
}

fn users_in(file: &Path) -> Result<HashMap<String, User>, StaticTokensError> {
    let text = read_bounded(file, MOST_BYTES)?;
    let mut reader =
        csv::ReaderBuilder::new().has_headers(false).flexible(true).trim(csv::Trim::All).from_reader(&*text);
    let mut users = HashMap::new();
    for record in reader.records() {
        let malformed = |line, fault| StaticTokensError::Malformed { file: file.to_owned(), line, fault };
        let record = record.map_err(|error| {
            malformed(error.position().map_or(0, csv::Position::line), "it is not comma-separated text in UTF-8")
        })?;
        let line = record.position().map_or(0, csv::Position::line);
        let text = |place: usize| record.get(place).unwrap_or_default();
        if record.len() < 3 {
            return Err(malformed(line, "it needs a token, a user name and a uid"));
        }
        if text(0).is_empty() || text(1).is_empty() {
            return Err(malformed(line, "the token and the user name may not be empty"));
        }
        let mut groups: Vec<String> = text(3).split(',').map(str::trim).map(str::to_owned).collect();
        groups.retain(|group| !group.is_empty());
        let uid = Some(text(2).to_owned()).filter(|uid| !uid.is_empty());
        let user = User { name: text(1).to_owned(), uid, groups, ..User::default() }.authenticated();
        if users.insert(text(0).to_owned(), user).is_some() {
            return Err(malformed(line, "its token stands in the file twice"));
        }
    }
    Ok(users)
}

impl std::fmt::Debug for StaticTokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StaticTokens").field("file", &self.0.file()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use crate::user::AUTHENTICATED;
    use std::time::Duration;

    use tempfile::NamedTempFile;

    use super::*;
    use crate::watched_file::LOOK;

    fn written(text: &str) -> NamedTempFile {
        let file = NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    #[test]
    fn each_line_is_a_token_and_its_user() {
        let file = written("t1,ann,u-1,\"devs, leads\"\nt2,bob,\n");
        let (file, user) = (&file, |name: &str, uid: Option<&str>, groups: &[&str]| User {
            name: name.to_owned(),
            uid: uid.map(str::to_owned),
            groups: groups.iter().map(ToString::to_string).collect(),
            ..User::default()
        });
        let tokens = StaticTokens::read(file.path());
        let known = |token: &str| tokens.as_ref().unwrap().user(token);
        assert_eq!(known("t1"), Some(user("ann", Some("u-1"), &["devs", "leads", AUTHENTICATED])));
        assert_eq!(known("t2"), Some(user("bob", None, &[AUTHENTICATED])));
        assert_eq!(known("t"), None);
        assert_eq!(known(""), None);
    }

    #[test]
    fn malformed_lines_are_reported_without_their_secrets() {
        for (text, expected) in [
            ("t1,ann,1\nsecret,bob\n", "line 2: it needs a token"),
            ("t1,ann,1\n,bob,2\n", "line 2: the token and the user name"),
            ("secret,ann,1\nsecret,bob,2\n", "line 2: its token stands in the file twice"),
        ] {
            let fault = StaticTokens::read(written(text).path()).unwrap_err().to_string();
            assert!(fault.contains(expected) && !fault.contains("secret"), "{fault}");
        }
        assert!(StaticTokens::read(Path::new("/nowhere/tokens.csv")).is_err());
    }

    #[tokio::test]
    async fn a_file_without_a_token_is_lost_and_withdraws_none() {
        for nothing in ["", "\n\n"] {
            let file = written(nothing);
            let refused = StaticTokens::read(file.path()).unwrap_err();
            assert!(matches!(refused, StaticTokensError::Empty(_)), "{nothing:?}: {refused}");
        }
        let file = written("t1,ann,1\n");
        let tokens = Arc::new(StaticTokens::read(file.path()).unwrap());
        let following = tokio::spawn(tokens.clone().follow());
        tokio::time::sleep(Duration::from_millis(50)).await;
        std::fs::write(file.path(), "").unwrap();
        while tokens.reads().counts() != [("success", 0), ("failure", 1)] {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(tokens.user("t1").is_some());
        // This is the way to withdraw all tokens.
        std::fs::write(file.path(), "of-nobody,nobody,0\n").unwrap();
        while tokens.user("t1").is_some() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        following.abort();
    }

    #[tokio::test]
    async fn token_files_are_reloaded_and_damaged_ones_ignored() {
        let file = written("t1,ann,1\n");
        let tokens = Arc::new(StaticTokens::read(file.path()).unwrap());
        let following = tokio::spawn(tokens.clone().follow());
        tokio::time::sleep(Duration::from_millis(50)).await;
        std::fs::write(file.path(), "t2,bobby,2\n").unwrap();
        while tokens.user("t2").is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(tokens.user("t1"), None);
        std::fs::write(file.path(), "damaged, and longer").unwrap();
        tokio::time::sleep(LOOK * 3).await;
        assert!(tokens.user("t2").is_some());
        following.abort();
    }
}
