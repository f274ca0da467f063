//! The position of a page in a list over several sources, as a sealed text.
//!
//! A continue token has the revision of each source, and perhaps the last object of a page. It is encrypted, since it
//! has the name of an object, and bound to its list. Its key is in the directory of the gateway, so that it outlives a
//! restart.

use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use keelson_access::pki::files::{Durability, write_private};
use keelson_access::{SealFault, TokenSeal};
use keelson_meta::error::ExpiredKind;
use keelson_meta::{ApiError, Random, Revision};
use serde_json::{Value, json};

use super::merge::Place;

/// The file with the key.
const FILE: &str = "token.key";
const KEY_BYTES: usize = 32;
/// The longest accepted text in bytes: that of several hundred sources. A request head has at most 64 KiB.
const MOST_BYTES: usize = 48 << 10;

const FOREIGN: &str = "it was altered, or belongs to another list or another user";

/// A position in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Position {
    /// The revision of each source; `None` for one that is missing from the list.
    pub(super) revisions: Vec<(String, Option<Revision>)>,
    /// The users that the sources know the caller as, in the same order.
    pub(super) users: Vec<String>,
    /// The last object before the position.
    pub(super) after: Option<Place>,
}

/// Reads the keys for tokens, or makes a key.
pub(super) fn seal(directory: &Path, random: Arc<dyn Random>) -> Result<TokenSeal, String> {
    let file = directory.join(FILE);
    if !file.exists() {
        let mut key = [0_u8; KEY_BYTES];
        random.fill(&mut key);
        let text = format!("{}\n", STANDARD.encode(key));
        write_private(&file, text.as_bytes(), Durability::Durable)
            .map_err(|error| format!("{}: {error}", file.display()))?;
    }
    TokenSeal::read(&file, random).map_err(|error| error.to_string())
}

impl Position {
    /// Seals the position for a list.
    ///
    /// # Errors
    /// 400 for too many sources.
    pub(super) fn seal(&self, seal: &TokenSeal, list: &str) -> Result<String, ApiError> {
        let revisions: Vec<Value> =
            self.revisions.iter().map(|(name, at)| json!([name, at.map(Revision::get)])).collect();
        let after = self.after.as_ref().map(
            |after| json!({"place": URL_SAFE_NO_PAD.encode(&after.place), "cluster": after.cluster, "key": after.key}),
        );
        let (first, others) = self.users.split_first().map_or(("", &[][..]), |(first, rest)| (first.as_str(), rest));
        // Most callers have one name everywhere.
        let users = if others.iter().all(|user| user == first) { Value::Null } else { json!(self.users) };
        let content = json!({"at": revisions, "users": users, "after": after}).to_string();
        let text = seal.seal(&content, list, first);
        if text.len() > MOST_BYTES {
            return Err(ApiError::BadRequest("the list is over too many clusters for a continue token".to_owned()));
        }
        Ok(text)
    }

    /// Opens a sealed position.
    ///
    /// # Errors
    /// 400 if it was altered or is of another list, 410 if its key is gone.
    pub(super) fn open(seal: &TokenSeal, text: &str, list: &str, what: &str) -> Result<Self, ApiError> {
        let foreign = || ApiError::BadRequest(format!("invalid {what}: {FOREIGN}"));
        if text.len() > MOST_BYTES {
            return Err(foreign());
        }
        let opened = seal.open(text, list).map_err(|fault| match fault {
            SealFault::Foreign => foreign(),
            SealFault::Retired => ApiError::Expired { message: ExpiredKind::ContinueTokenNoRest, continue_token: None },
        })?;
        Self::parse(&opened.token, &opened.caller).ok_or_else(foreign)
    }

    fn parse(content: &str, first: &str) -> Option<Self> {
        let content: Value = serde_json::from_str(content).ok()?;
        let mut revisions = Vec::new();
        for stated in content["at"].as_array()? {
            let revision = if stated[1].is_null() { None } else { Some(Revision::new(stated[1].as_u64()?)) };
            revisions.push((stated[0].as_str()?.to_owned(), revision));
        }
        let users = match &content["users"] {
            Value::Array(users) => users.iter().map(|user| user.as_str().map(str::to_owned)).collect::<Option<_>>()?,
            _ => revisions.iter().map(|_| first.to_owned()).collect(),
        };
        let after = match &content["after"] {
            Value::Null => None,
            after => Some(Place {
                place: URL_SAFE_NO_PAD.decode(after["place"].as_str()?).ok()?,
                cluster: after["cluster"].as_str()?.to_owned(),
                key: after["key"].as_str()?.to_owned(),
            }),
        };
        Some(Self { revisions, users, after })
    }

    /// The revision of a source; `None` if the source is unknown here.
    pub(super) fn revision(&self, cluster: &str) -> Option<Option<Revision>> {
        self.revisions.iter().find(|(name, _)| name == cluster).map(|(_, revision)| *revision)
    }

    /// Checks that a source knows the caller as the user that the position was made for.
    ///
    /// # Errors
    /// 400 for another user.
    pub(super) fn check_user(&self, cluster: &str, user: &str) -> Result<(), ApiError> {
        let mut known = self.revisions.iter().zip(&self.users).filter(|((name, _), _)| name == cluster);
        match known.next() {
            Some((_, known)) if known == user => Ok(()),
            _ => Err(ApiError::BadRequest(format!("invalid continue token: {FOREIGN}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use keelson_meta::random::SeededRandom;
    use tempfile::TempDir;

    use super::*;

    fn position(users: [&str; 2]) -> Position {
        Position {
            revisions: vec![("a".to_owned(), Some(Revision::new(7))), ("b".to_owned(), None)],
            users: users.map(str::to_owned).to_vec(),
            after: Some(Place { place: vec![0, 255], cluster: "a".to_owned(), key: "n/x".to_owned() }),
        }
    }

    #[test]
    fn a_position_opens_only_unaltered_and_for_its_list() {
        let directory = TempDir::new().unwrap();
        let keys = seal(directory.path(), Arc::new(SeededRandom::new(1))).unwrap();
        for users in [["ann", "ann"], ["ann", "bob"]] {
            let text = position(users).seal(&keys, "pods").unwrap();
            assert!(!text.contains("n/x"));
            assert_eq!(Position::open(&keys, &text, "pods", "token").unwrap(), position(users));
            assert!(Position::open(&keys, &text, "secrets", "token").is_err());
            for at in 0..text.len() {
                let mut forged = text.clone().into_bytes();
                forged[at] = if forged[at] == b'A' { b'B' } else { b'A' };
                let forged = String::from_utf8(forged).unwrap();
                if URL_SAFE_NO_PAD.decode(&forged).ok() != URL_SAFE_NO_PAD.decode(&text).ok() {
                    assert!(Position::open(&keys, &forged, "pods", "token").is_err(), "{at}");
                }
            }
            // The key outlives a restart.
            let again = seal(directory.path(), Arc::new(SeededRandom::new(2))).unwrap();
            assert!(Position::open(&again, &text, "pods", "token").is_ok());
            let other = seal(TempDir::new().unwrap().path(), Arc::new(SeededRandom::new(3))).unwrap();
            assert!(Position::open(&other, &text, "pods", "token").is_err());
        }
        let known = position(["ann", "bob"]);
        assert!(known.check_user("a", "ann").is_ok() && known.check_user("b", "bob").is_ok());
        assert!(known.check_user("a", "bob").is_err() && known.check_user("c", "ann").is_err());
    }
}
