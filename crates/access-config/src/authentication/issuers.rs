//! All issuers of a configuration. The file is reloaded after changes.
//!
//! Unchanged issuers keep their keys and cached tokens. A removed issuer is no longer trusted once the file is read.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use arc_swap::ArcSwap;
use futures::future::{BoxFuture, join_all};
use keelson_access::{ForeignTokens, TokenAnswer, User};
use keelson_meta::Clock;
use keelson_meta::go_format::{quote, quote_list};
use keelson_meta::metering::{AtomicHistogram, Buckets};
use keelson_outbound::Outbound;

use super::claims::Mapper;
use super::config::{AuthenticationConfiguration, JwtAuthenticator};
use super::flags::OidcFlags;
use super::issuer::IssuerKeys;
use crate::answers::{Answers, answer_key};
use crate::document::{ConfigurationError, hash_of, hash_of_file};
use crate::followed::{self, FollowedFile};
use crate::jwt::{Algorithm, SIGNING_ALGORITHMS, Token};
use crate::reloads::Reloads;

/// The time for which the user of a token is cached, as in upstream.
const REMEMBERED: Duration = Duration::from_secs(10);
/// The largest number of cached tokens of an issuer.
const REMEMBERED_TOKENS: usize = 4096;
/// Google's issuer name in tokens, which differs from the URL of the issuer.
const GOOGLE: (&str, &str) = ("accounts.google.com", "https://accounts.google.com");

/// The trusted issuers.
pub struct ConfiguredIssuers {
    source: Source,
    disallowed: Vec<String>,
    algorithms: Vec<String>,
    outbound: Arc<Outbound>,
    clock: Arc<dyn Clock>,
    current: ArcSwap<Issuers>,
    reloads: Reloads,
}

/// The source of the configuration.
#[derive(Clone, Debug)]
enum Source {
    /// A file.
    File(PathBuf),
    /// Flags, which may name a file with authorities.
    Flags(OidcFlags),
}

impl Source {
    /// The configuration, and the hash of its file.
    fn configuration(&self) -> Result<(AuthenticationConfiguration, Option<String>), ConfigurationError> {
        match self {
            Self::File(file) => Ok((AuthenticationConfiguration::load(file)?, hash_of_file(file))),
            Self::Flags(flags) => Ok((flags.configuration()?, None)),
        }
    }

    /// The file that is reloaded, if any.
    fn file(&self) -> Option<&Path> {
        match self {
            Self::File(file) => Some(file),
            Self::Flags(flags) => flags.ca_file.as_deref(),
        }
    }

    /// The accepted signature algorithms.
    fn algorithms(&self) -> Vec<String> {
        match self {
            Self::File(_) => SIGNING_ALGORITHMS.map(str::to_owned).to_vec(),
            Self::Flags(flags) => flags.signing_algorithms.clone(),
        }
    }
}

/// The issuers of one version of the configuration.
pub(crate) struct Issuers {
    configuration: AuthenticationConfiguration,
    each: Vec<Arc<JwtIssuer>>,
    /// The hash of the file.
    hash: Option<String>,
}

/// An issuer, and the mapping of its tokens to users.
struct JwtIssuer {
    authenticator: JwtAuthenticator,
    mapper: Mapper,
    keys: Arc<IssuerKeys>,
    remembered: Answers<Result<Arc<User>, String>>,
    /// The durations of verifications that were not cached: of accepted tokens, and of rejected ones.
    times: [Arc<AtomicHistogram>; 2],
}

/// Upper bounds of the buckets, in microseconds.
static TIME_BUCKETS: Buckets = Buckets::of_durations(&[
    1_000, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 5_000_000, 10_000_000,
]);

/// The durations of the token verifications of an issuer.
#[derive(Clone, Debug)]
pub struct IssuerTimes {
    /// The SHA-256 hash of the issuer's URL, with the name of the algorithm.
    pub issuer_hash: String,
    /// The durations by result: `success` and `failure`.
    pub by_result: [(&'static str, Arc<AtomicHistogram>); 2],
}

/// The counts of an issuer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuerSample {
    /// The URL of the issuer.
    pub url: String,
    /// The number of accepted tokens.
    pub succeeded: u64,
    /// The number of rejected tokens.
    pub failed: u64,
    /// True if the issuer was reached at least once.
    pub is_known: bool,
    /// The SHA-256 hash of the issuer's URL, with the name of the algorithm.
    pub issuer_hash: String,
    /// The times of the last fetches of its keys, by result.
    pub fetched: [(&'static str, Option<SystemTime>); 2],
    /// The hash of the document with its keys.
    pub key_set_hash: Option<String>,
}

impl ConfiguredIssuers {
    /// Reads the issuers of a file.
    ///
    /// # Errors
    /// The file cannot be read or is invalid. An issuer with one of the `disallowed` names is an error too.
    pub fn of_file(
        file: &Path,
        disallowed: Vec<String>,
        outbound: Arc<Outbound>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, ConfigurationError> {
        Self::new(Source::File(file.to_owned()), disallowed, outbound, clock)
    }

    /// Builds the issuer of flags.
    ///
    /// # Errors
    /// The flags contradict each other or are invalid.
    pub fn of_flags(
        flags: &OidcFlags,
        disallowed: Vec<String>,
        outbound: Arc<Outbound>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, ConfigurationError> {
        Self::new(Source::Flags(flags.clone()), disallowed, outbound, clock)
    }

    fn new(
        source: Source,
        disallowed: Vec<String>,
        outbound: Arc<Outbound>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, ConfigurationError> {
        let first = Issuers::new(source.configuration()?, &disallowed, (&outbound, &clock), None)?;
        let (current, reloads) = (ArcSwap::from_pointee(first), Reloads::default());
        let algorithms = source.algorithms();
        Ok(Self { source, disallowed, algorithms, outbound, clock, current, reloads })
    }

    /// Returns true if the path accepts anonymous requests; `None` if the configuration has no rule about them.
    pub fn takes_anonymous(&self, path: &str) -> Option<bool> {
        self.current.load().configuration.anonymous.as_ref().map(|anonymous| anonymous.takes(path))
    }

    /// The hash of the file in force; `None` if the configuration comes from flags.
    pub fn hash(&self) -> Option<String> {
        self.current.load().hash.clone()
    }

    /// The numbers of reloads.
    pub fn reloads(&self) -> &Reloads {
        &self.reloads
    }

    /// The counts of each issuer.
    pub fn samples(&self) -> Vec<IssuerSample> {
        let current = self.current.load();
        let sample = |one: &Arc<JwtIssuer>| {
            let [succeeded, failed] = one.times.each_ref().map(|times| times.count());
            let url = one.authenticator.issuer.url.clone();
            let (is_known, key_set_hash) = (one.keys.is_known(), one.keys.hash());
            let (issuer_hash, fetched) = (hash_of(url.as_bytes()), one.keys.fetched());
            IssuerSample { url, succeeded, failed, is_known, issuer_hash, fetched, key_set_hash }
        };
        current.each.iter().map(sample).collect()
    }

    /// The durations of verifications that were not cached.
    pub fn times(&self) -> Vec<IssuerTimes> {
        let current = self.current.load();
        let times = |one: &Arc<JwtIssuer>| {
            let issuer_hash = hash_of(one.authenticator.issuer.url.as_bytes());
            let [success, failure] = one.times.each_ref().map(Arc::clone);
            IssuerTimes { issuer_hash, by_result: [("success", success), ("failure", failure)] }
        };
        current.each.iter().map(times).collect()
    }

    /// Reloads the file after changes, and refreshes the keys of the issuers. Never returns.
    pub async fn follow(self: Arc<Self>) {
        followed::follow(self).await;
    }
}

impl FollowedFile for ConfiguredIssuers {
    const NAME: &'static str = "authentication";
    type Current = Issuers;

    fn file(&self) -> Option<&Path> {
        self.source.file()
    }

    fn current(&self) -> &ArcSwap<Issuers> {
        &self.current
    }

    fn reloads(&self) -> &Reloads {
        &self.reloads
    }

    fn now(&self) -> SystemTime {
        self.clock.now()
    }

    fn read(&self) -> Result<Option<Issuers>, ConfigurationError> {
        let read = self.source.configuration()?;
        let current = self.current.load();
        if read.0 == current.configuration {
            return Ok(None);
        }
        Issuers::new(read, &self.disallowed, (&self.outbound, &self.clock), Some(&current)).map(Some)
    }

    async fn keep_up(current: &Issuers) {
        join_all(current.each.iter().map(|one| one.keys.keep_up())).await;
    }
}

impl Issuers {
    /// Creates the issuers. Unchanged ones keep their state.
    fn new(
        (configuration, hash): (AuthenticationConfiguration, Option<String>),
        disallowed: &[String],
        (outbound, clock): (&Arc<Outbound>, &Arc<dyn Clock>),
        before: Option<&Self>,
    ) -> Result<Self, ConfigurationError> {
        let mappers = configuration
            .compile(disallowed)
            .map_err(|faults| ConfigurationError::Invalid { what: "authentication", faults })?;
        let before = before.map_or(&[][..], |before| &before.each);
        let each = configuration.jwt.iter().zip(mappers).map(|(authenticator, mapper)| {
            if let Some(same) = before.iter().find(|one| one.authenticator == *authenticator) {
                return same.clone();
            }
            let issuer = &authenticator.issuer;
            let known = before.iter().find(|one| one.authenticator.issuer == *issuer).map(|one| one.keys.clone());
            let new = || Arc::new(IssuerKeys::new(issuer.clone(), outbound.clone(), clock.clone()));
            let keys = known.unwrap_or_else(new);
            Arc::new(JwtIssuer {
                authenticator: authenticator.clone(),
                mapper,
                keys,
                remembered: Answers::new(REMEMBERED_TOKENS),
                times: [0, 1].map(|_| Arc::new(AtomicHistogram::new(&TIME_BUCKETS))),
            })
        });
        let each = each.collect();
        Ok(Self { configuration, each, hash })
    }
}

impl JwtIssuer {
    /// The user of a token, and the time until which it may be cached.
    async fn user(
        &self,
        token: &Token<'_>,
        algorithms: &[String],
        clock: &dyn Clock,
    ) -> (Result<Arc<User>, String>, Duration) {
        let begun = Instant::now();
        let verified = self.verified(token, algorithms, clock).await;
        self.times[usize::from(verified.is_err())].observe_duration(begun.elapsed());
        match verified {
            Ok(user) => {
                let left = token.expires().and_then(|expires| expires.duration_since(clock.now()).ok());
                (Ok(Arc::new(user)), left.unwrap_or_default().min(REMEMBERED))
            }
            Err(why) => (Err(why), Duration::ZERO),
        }
    }

    /// Verifies a token. Cheap checks come first, so that an expired token does not trigger a fetch of keys.
    async fn verified(&self, token: &Token<'_>, algorithms: &[String], clock: &dyn Clock) -> Result<User, String> {
        if !self.keys.is_known() {
            return Err("oidc: authenticator not initialized".to_owned());
        }
        let refused = |why: String| format!("oidc: verify token: {why}");
        token.check_types().map_err(refused)?;
        self.check_audience(token).map_err(refused)?;
        token.check_time(clock.now()).map_err(refused)?;
        let name = token.algorithm();
        let algorithm = Algorithm::named(name).filter(|_| algorithms.iter().any(|known| known == name));
        let Some(algorithm) = algorithm.filter(|_| token.is_plain()) else {
            let expected = quote_list(algorithms);
            return Err(refused(format!(
                "oidc: id token signed with unsupported algorithm, expected {expected} got {name:?}"
            )));
        };
        self.keys.verify(token, algorithm).await?;
        self.mapper.user(&self.authenticator.claim_mappings, &token.claims)
    }

    fn check_audience(&self, token: &Token<'_>) -> Result<(), String> {
        let (own, found) = (&self.authenticator.issuer.audiences, token.audiences());
        if found.iter().any(|found| own.iter().any(|own| own == found)) {
            return Ok(());
        }
        let mut sorted: Vec<&str> = own.iter().map(String::as_str).collect();
        sorted.sort_unstable();
        let expected = match sorted.as_slice() {
            [one] => quote(one),
            many => format!("in {}", quote_list(many)),
        };
        Err(format!("oidc: expected audience {expected} got {}", quote_list(&found)))
    }
}

impl ForeignTokens for ConfiguredIssuers {
    fn authenticate<'a>(&'a self, token: &'a str, _audiences: &'a [String]) -> BoxFuture<'a, TokenAnswer> {
        Box::pin(async move {
            let Some(read) = Token::read(token) else { return Ok(None) };
            let named = match read.issuer() {
                short if short == GOOGLE.0 => GOOGLE.1,
                url => url,
            };
            let current = self.current.load_full();
            let Some(issuer) = current.each.iter().find(|one| one.authenticator.issuer.url == named) else {
                return Ok(None);
            };
            let ask = issuer.user(&read, &self.algorithms, &*self.clock);
            let user = issuer.remembered.get(answer_key([token.as_bytes()]), ask).await?;
            // The token's audiences are not those of this server, so it is valid for all of them.
            Ok(Some((User::clone(&user), None)))
        })
    }
}

impl fmt::Debug for ConfiguredIssuers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConfiguredIssuers").field("source", &self.source).finish_non_exhaustive()
    }
}
