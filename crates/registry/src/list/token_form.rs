//! The form of the tokens of lists and queries: plain, or sealed for the caller.
//!
//! The content of a token is an opaque text here.

use std::borrow::Cow;
use std::sync::Arc;

use keelson_access::{SealFault, TokenSeal};
use keelson_meta::ApiError;
use keelson_meta::error::ExpiredKind;

use crate::config::RegistryConfig;
use crate::target::Target;

const FOREIGN: &str = "continue key is not valid: it was altered, or belongs to another list or another user";

/// The form of the tokens of one list.
#[derive(Clone, Debug)]
pub(crate) struct TokenForm {
    seal: Option<Arc<TokenSeal>>,
    /// The text that binds a sealed token to its list.
    list: String,
    caller: Option<String>,
}

impl TokenForm {
    /// The form for a caller, given its user name. Without one, tokens of every caller are accepted and none are made.
    pub(crate) fn new(target: &Target, config: &RegistryConfig, caller: Option<&str>) -> Self {
        Self {
            seal: config.token_seal.clone(),
            list: format!("{} {}", target.group_resource(), target.key_prefix()),
            caller: caller.map(str::to_owned),
        }
    }

    /// A token in the form for the client.
    pub(crate) fn give(&self, token: String) -> String {
        match &self.seal {
            None => token,
            Some(seal) => seal.seal(&token, &self.list, self.caller.as_deref().unwrap_or_default()),
        }
    }

    /// Opens a token that a client sent.
    ///
    /// # Errors
    /// 400 for a token that was altered, or that belongs to another list or caller. 410 for a token whose key no longer
    /// exists.
    pub(crate) fn take<'t>(&self, text: &'t str) -> Result<Cow<'t, str>, ApiError> {
        let Some(seal) = &self.seal else { return Ok(Cow::Borrowed(text)) };
        let foreign = || ApiError::BadRequest(format!("invalid continue token: {FOREIGN}"));
        let opened = seal.open(text, &self.list).map_err(|fault| match fault {
            SealFault::Foreign => foreign(),
            SealFault::Retired => ApiError::Expired { message: ExpiredKind::ContinueTokenNoRest, continue_token: None },
        })?;
        if self.caller.as_ref().is_some_and(|caller| *caller != opened.caller) {
            return Err(foreign());
        }
        Ok(Cow::Owned(opened.token))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use base64::Engine as _;
    use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
    use keelson_meta::json::json;
    use keelson_meta::random::SeededRandom;
    use keelson_meta::{Random, Revision};
    use keelson_storage::ContinueToken;
    use tempfile::NamedTempFile;

    use super::super::page::KeyRange;
    use super::*;
    use crate::surface::tests::target_of;

    /// The number of forged tokens.
    const TOKENS: usize = 1_000_000;
    /// The number of threads.
    const THREADS: usize = 2;
    /// The number of alterations of one token, each of another kind.
    const ALTERATIONS: usize = 20;

    /// Seals of two clusters with different keys.
    fn seal(byte: u8, random: &Arc<SeededRandom>) -> Arc<TokenSeal> {
        let file = NamedTempFile::new().unwrap();
        fs::write(file.path(), STANDARD.encode([byte; 32])).unwrap();
        Arc::new(TokenSeal::read(file.path(), random.clone()).unwrap())
    }

    /// The lists of two resources in two namespaces, and of all.
    fn lists() -> Vec<Target> {
        let of = |plural: &'static str| {
            [None, Some("q"), Some("q1")].map(|place| target_of(plural, |version| version).in_namespace(place))
        };
        [of("pods"), of("secrets")].concat()
    }

    fn below(random: &dyn Random, bound: usize) -> usize {
        usize::try_from(random.u64() % bound as u64).unwrap()
    }

    /// Alters a token, or joins parts of two tokens.
    fn altered(token: &str, other: &str, random: &dyn Random) -> String {
        let mut bytes = URL_SAFE_NO_PAD.decode(token).unwrap();
        let other = URL_SAFE_NO_PAD.decode(other).unwrap();
        let at = below(random, bytes.len());
        match below(random, 6) {
            0 => bytes[at] ^= 1 << below(random, 8),
            1 => bytes.truncate(at),
            2 => bytes.extend_from_slice(&other[..at.min(other.len())]),
            3 => {
                let at = at.min(other.len());
                bytes.splice(..at, other[..at].iter().copied());
            }
            4 => {
                let length = bytes.len().min(other.len());
                bytes[at.min(length)..length].copy_from_slice(&other[at.min(length)..length]);
            }
            _ => {
                let mut text = token.as_bytes().to_vec();
                text[at] = b"Ab9-_"[below(random, 5)];
                return String::from_utf8(text).unwrap();
            }
        }
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// A form for each list and caller.
    fn forms(seal: Option<&Arc<TokenSeal>>) -> Vec<(Target, TokenForm)> {
        let config = RegistryConfig { token_seal: seal.cloned(), ..RegistryConfig::default() };
        let callers = ["ann", "bob", "system:serviceaccount:q:ann"];
        let of_list = |list: Target| {
            let config = config.clone();
            callers.map(move |caller| (list.clone(), TokenForm::new(&list, &config, Some(caller))))
        };
        lists().into_iter().flat_map(of_list).collect()
    }

    /// Runs a part of the work on each thread, with its own random numbers, and adds the results.
    fn on_threads(seed: u64, work: impl Fn(&Arc<SeededRandom>) -> usize + Sync) -> usize {
        std::thread::scope(|scope| {
            let threads = (0..THREADS as u64).map(|thread| {
                let (work, random) = (&work, Arc::new(SeededRandom::new(seed + thread)));
                scope.spawn(move || work(&random))
            });
            let threads: Vec<_> = threads.collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        })
    }

    #[test]
    fn altered_and_foreign_sealed_tokens_are_refused() {
        let taken = on_threads(7, |random| {
            let (own, foreign) = (forms(Some(&seal(1, random))), forms(Some(&seal(2, random))));
            let any_token = || {
                let name = format!("q/{}", "n".repeat(below(&**random, 60)));
                ContinueToken::after(Revision::new(1 + random.u64() % 1000), &name).encode()
            };
            let mut taken = 0;
            // Besides the altered tokens, three tokens of another caller or of none are sent.
            for _ in 0..TOKENS / THREADS / (ALTERATIONS + 3) + 1 {
                let (place, other_place) = (below(&**random, own.len()), below(&**random, own.len()));
                let (taker, token) = (&own[place].1, any_token());
                let given = taker.give(token.clone());
                let elsewhere = own[other_place].1.give(any_token());
                let mut sent: Vec<String> = (0..ALTERATIONS).map(|_| altered(&given, &elsewhere, &**random)).collect();
                sent.extend([elsewhere.clone(), foreign[place].1.give(any_token()), any_token()]);
                for sent in &sent {
                    let is_own = *sent == given || *sent == elsewhere && place == other_place;
                    match taker.take(sent) {
                        Ok(_) if is_own => taken += 1,
                        Ok(read) => panic!("{sent} is taken as {read}"),
                        Err(error) => assert!(!is_own && matches!(error.code(), 400 | 410), "{error}"),
                    }
                }
                assert_eq!(taker.take(&given).unwrap(), token, "what was given is taken");
            }
            taken
        });
        assert!(taken > 0, "some tokens are the list's own and the caller's");
    }

    #[test]
    fn forged_sealed_tokens_never_leave_the_range_of_the_list() {
        let starts = ["../", "/", "..", "\0", "q1/", "q/", "a", "\u{10ffff}", "/../secrets/", "", "%2e%2e/", "."];
        let read = on_threads(8, |random| {
            let (forms, random) = (forms(None), &**random);
            let mut read = 0;
            for _ in 0..TOKENS / THREADS / (ALTERATIONS + 1) + 1 {
                let (list, form) = &forms[below(random, forms.len())];
                let prefix = list.key_prefix();
                let whole = KeyRange::below(&prefix, "");
                let start: String = (0..below(random, 6)).map(|_| starts[below(random, starts.len())]).collect();
                let revision = random.u64() % 100;
                let forged = json!({"v": "meta.k8s.io/v1", "rv": revision, "start": start}).to_string();
                let forged = URL_SAFE_NO_PAD.encode(forged);
                let honest = ContinueToken::after(Revision::new(1 + revision), "q/a").encode();
                let altered = (0..ALTERATIONS).map(|turn| match turn % 2 {
                    0 => altered(&forged, &honest, random),
                    _ => altered(&honest, &forged, random),
                });
                for sent in altered.chain([forged.clone()]) {
                    let Ok(token) = ContinueToken::decode(&form.take(&sent).unwrap()) else { continue };
                    read += 1;
                    let range = KeyRange::below(&prefix, &token.start);
                    assert!(range.from.starts_with(&prefix) && range.to == whole.to, "{sent} leads to {range:?}");
                }
            }
            read
        });
        assert!(read > 0, "some tokens can be read");
    }
}
