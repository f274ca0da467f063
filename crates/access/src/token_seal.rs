//! Encryption of continue tokens. They contain names of objects, which a client without the right to list the objects
//! must not read.
//!
//! A token is encrypted with AES-256-GCM, bound to the resource and range of its list, and contains the name of its
//! client. The keys are in a file, one per line (32 bytes in base64). The first key seals, and all keys open. The file
//! is reloaded after changes.
//!
//! To rotate a key, add the new one after the old one on all servers of a store. Then put it first. Remove the old one
//! after its tokens have expired. Padding hides the lengths of names.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use keelson_meta::Random;

use crate::watched_file::{Contents, FileError, FileReads, ParsedFile, read_bounded};

/// The length of a key in bytes.
pub(crate) const KEY_BYTES: usize = 32;
/// The length in bytes of the hash that identifies a key.
const ID_BYTES: usize = 4;
/// The first byte of a sealed token. An unsealed one starts with `{`.
const SEALED: u8 = 1;
const HEAD_BYTES: usize = 1 + ID_BYTES + NONCE_LEN;
/// Tokens are padded to a multiple of this length in bytes.
const FILL_BYTES: usize = 256;
/// The largest accepted file in bytes.
const MOST_BYTES: u64 = 64 * 1024;
/// Terminates the name of the client, and pads the token.
const END: char = '\0';

/// The reason why a file of keys is refused.
#[derive(Debug, thiserror::Error)]
pub enum TokenSealError {
    /// The file cannot be read, or is too large.
    #[error(transparent)]
    File(#[from] FileError),
    /// A line is not a key.
    #[error("{file}, line {line}: a key is {KEY_BYTES} bytes in base64 (openssl rand -base64 {KEY_BYTES})")]
    Malformed {
        /// The file.
        file: PathBuf,
        /// The number of the line, counted from 1.
        line: usize,
    },
    /// The file has no keys.
    #[error("{0} has no key")]
    Empty(PathBuf),
}

/// The reason why a token cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SealFault {
    /// The token was altered, or belongs to another list.
    Foreign,
    /// The token is not sealed, or its key was removed.
    Retired,
}

/// An opened token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The user that the token was issued to.
    pub caller: String,
    /// The token.
    pub token: String,
}

/// Seals tokens and opens them.
pub struct TokenSeal {
    keys: ParsedFile<SealKeys>,
    random: Arc<dyn Random>,
}

/// The keys; the first one seals. Never empty.
struct SealKeys(Vec<SealKey>);

struct SealKey {
    id: [u8; ID_BYTES],
    key: LessSafeKey,
}

impl TokenSeal {
    /// Reads the keys.
    ///
    /// # Errors
    /// The file has no keys, or a line is not a key.
    pub fn read(file: &Path, random: Arc<dyn Random>) -> Result<Self, TokenSealError> {
        Ok(Self { keys: ParsedFile::read(file)?, random })
    }

    /// The counts of reloads.
    pub fn reads(&self) -> &FileReads {
        self.keys.reads()
    }

    /// Reloads the file after changes. An invalid file leaves the previous keys in use. Never returns.
    pub async fn follow(self: Arc<Self>) {
        self.keys.follow().await;
    }

    /// Seals a token of a list for a user.
    pub fn seal(&self, token: &str, list: &str, caller: &str) -> String {
        let keys = self.keys.current();
        let mut nonce = [0u8; NONCE_LEN];
        self.random.fill(&mut nonce);
        let mut content = format!("{caller}{END}{token}{END}").into_bytes();
        content.resize(content.len().next_multiple_of(FILL_BYTES), END as u8);
        let SealKey { id, key } = &keys.0[0];
        let (nonce_text, aad) = (nonce, Aad::from(list.as_bytes()));
        // An empty token would mean that the list is complete.
        key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut content)
            .expect("only gigabytes can't be sealed, and keys of objects are bounded");
        URL_SAFE_NO_PAD.encode([&[SEALED][..], id, &nonce_text, &content].concat())
    }

    /// Opens a token of a list.
    ///
    /// # Errors
    /// The reason why the token cannot be opened.
    pub fn open(&self, text: &str, list: &str) -> Result<Opened, SealFault> {
        let mut bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| SealFault::Foreign)?;
        if bytes.first() != Some(&SEALED) {
            return Err(if bytes.first() == Some(&b'{') { SealFault::Retired } else { SealFault::Foreign });
        }
        let (head, content) = bytes.split_at_mut_checked(HEAD_BYTES).ok_or(SealFault::Foreign)?;
        let (id, nonce) = head[1..].split_at(ID_BYTES);
        let keys = self.keys.current();
        let key = keys.0.iter().find(|key| key.id == id).ok_or(SealFault::Retired)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| SealFault::Foreign)?;
        let opened = key.key.open_in_place(nonce, Aad::from(list.as_bytes()), content);
        let text = opened.ok().and_then(|opened| std::str::from_utf8(opened).ok()).ok_or(SealFault::Foreign)?;
        let mut parts = text.split(END);
        let (Some(caller), Some(token)) = (parts.next(), parts.next()) else { return Err(SealFault::Foreign) };
        Ok(Opened { caller: caller.to_owned(), token: token.to_owned() })
    }
}

/// Omits the keys, which must never be logged.
impl fmt::Debug for TokenSeal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenSeal").field("file", &self.keys.file()).finish_non_exhaustive()
    }
}

impl Contents for SealKeys {
    const NAME: &str = "keys of tokens";
    type Error = TokenSealError;

    fn read(file: &Path) -> Result<Self, TokenSealError> {
        let keys = keys_in(file)?;
        if keys.is_empty() { Err(TokenSealError::Empty(file.to_owned())) } else { Ok(Self(keys)) }
    }

    fn count(&self) -> usize {
        self.0.len()
    }
}

fn keys_in(file: &Path) -> Result<Vec<SealKey>, TokenSealError> {
    let text = String::from_utf8(read_bounded(file, MOST_BYTES)?).map_err(|error| {
        FileError::Unreadable(file.to_owned(), std::io::Error::new(std::io::ErrorKind::InvalidData, error.utf8_error()))
    })?;
    let lines = text.lines().map(str::trim).enumerate();
    lines
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .map(|(at, line)| key_of(line).ok_or_else(|| TokenSealError::Malformed { file: file.to_owned(), line: at + 1 }))
        .collect()
}

fn key_of(line: &str) -> Option<SealKey> {
    let bytes = STANDARD.decode(line).ok().filter(|bytes| bytes.len() == KEY_BYTES)?;
    let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &bytes).ok()?);
    let hash = digest::digest(&digest::SHA256, &[b"keelson continue token key", &bytes[..]].concat());
    Some(SealKey { id: hash.as_ref().get(..ID_BYTES)?.try_into().ok()?, key })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use keelson_meta::random::SystemRandom;
    use proptest::prelude::*;
    use tempfile::NamedTempFile;

    use super::*;

    fn written(text: &str) -> NamedTempFile {
        let file = NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    fn key(byte: u8) -> String {
        STANDARD.encode([byte; KEY_BYTES])
    }

    fn seal(text: &str) -> TokenSeal {
        TokenSeal::read(written(text).path(), Arc::new(SystemRandom)).unwrap()
    }

    #[test]
    fn sealed_tokens_open_only_for_their_list_and_hide_content() {
        let seal = seal(&key(1));
        let sealed = seal.seal("a-secret-name", "pods/web", "ann");
        let opened = Opened { caller: "ann".to_owned(), token: "a-secret-name".to_owned() };
        assert_eq!(seal.open(&sealed, "pods/web"), Ok(opened));
        assert_eq!(seal.open(&sealed, "pods/"), Err(SealFault::Foreign));
        let bytes = URL_SAFE_NO_PAD.decode(&sealed).unwrap();
        assert!(!String::from_utf8_lossy(&bytes).contains("secret"));
        assert_ne!(sealed, seal.seal("a-secret-name", "pods/web", "ann"), "nor that two are the same");
        assert_eq!(sealed.len(), seal.seal("b", "pods/web", "ann").len(), "nor the lengths of names");
    }

    #[test]
    fn keys_are_changed_without_a_pause() {
        let (old, both, new) = (seal(&key(1)), seal(&format!("# new\n{}\n{}\n", key(2), key(1))), seal(&key(2)));
        let of_old = old.seal("t", "l", "u");
        assert!(both.open(&of_old, "l").is_ok());
        assert_eq!(new.open(&of_old, "l"), Err(SealFault::Retired));
        assert_eq!(old.open(&both.seal("t", "l", "u"), "l"), Err(SealFault::Retired), "the first one seals");
        let plain = URL_SAFE_NO_PAD.encode(r#"{"v":"meta.k8s.io/v1"}"#);
        assert_eq!(new.open(&plain, "l"), Err(SealFault::Retired), "as one from before there were keys");
    }

    #[test]
    fn malformed_key_files_are_refused() {
        for (text, expected) in [("", "has no key"), ("# none\n", "has no key"), ("x", "line 1"), ("\nAAAA", "line 2")]
        {
            let fault = TokenSeal::read(written(text).path(), Arc::new(SystemRandom)).unwrap_err().to_string();
            assert!(fault.contains(expected), "{fault}");
        }
        assert!(TokenSeal::read(Path::new("/nowhere"), Arc::new(SystemRandom)).is_err());
    }

    #[tokio::test]
    async fn keys_that_change_are_read_again() {
        let file = written(&key(1));
        let seal = Arc::new(TokenSeal::read(file.path(), Arc::new(SystemRandom)).unwrap());
        let following = tokio::spawn(seal.clone().follow());
        tokio::time::sleep(Duration::from_millis(50)).await;
        let of_old = seal.seal("t", "l", "u");
        std::fs::write(file.path(), format!("# another\n{}\n", key(2))).unwrap();
        while seal.open(&of_old, "l").is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(seal.open(&seal.seal("t", "l", "u"), "l").is_ok());
        following.abort();
    }

    proptest! {
        #[test]
        fn altered_tokens_are_refused(at in 0usize..400, with in 1u8.., cut in 0usize..400, token in "[a-z]{0,300}") {
            let seal = seal(&key(1));
            let sealed = URL_SAFE_NO_PAD.decode(seal.seal(&token, "l", "u")).unwrap();
            let mut altered = sealed.clone();
            let place = at % altered.len();
            altered[place] ^= with;
            prop_assert!(seal.open(&URL_SAFE_NO_PAD.encode(&altered), "l").is_err());
            let cut = &sealed[..cut.min(sealed.len() - 1)];
            prop_assert!(seal.open(&URL_SAFE_NO_PAD.encode(cut), "l").is_err());
        }

        #[test]
        fn arbitrary_text_is_not_a_sealed_token(text in ".{0,200}") {
            prop_assert!(seal(&key(1)).open(&text, "l").is_err());
        }
    }
}
