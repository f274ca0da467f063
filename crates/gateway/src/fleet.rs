//! Lists over several sources, and over the namespaces that a caller may see.
//!
//! A list has parts: one for each source, or for each namespace of a source. A part is a request of its own to the
//! source's pipeline (`parts.rs`), so that the source authenticates the caller and decides about its rights as for any
//! list. `merge.rs` joins the ordered results, and `token.rs` seals the position of a page.
//!
//! Invariants:
//! - An object, a count or a group comes from a part that its source has allowed for this caller.
//! - A response names each source that is missing from it, and each whose state is old.
//! - A token is bound to its list, its user and the revisions of its sources.

mod answer;
mod ask;
mod callers;
mod merge;
mod parts;
mod permitted;
mod token;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream;
use http::request::Parts;
use http::{Response, Uri};
use keelson_access::TokenSeal;
use keelson_http::Pipeline;
use keelson_http::body::ResponseBody;
use keelson_http::filters::{ClientConnection, FanOut, WithoutCertificate};
use keelson_http::handlers::{MergedLists, MergedPages};
use keelson_http::{negotiation, respond};
use keelson_meta::{ApiError, Random};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use self::ask::FleetRequest;
use self::callers::Callers;
pub(crate) use self::parts::PartSlot;
use self::parts::{ListShare, Missing, Outcome};
use crate::mirrors::Mirrors;

/// The path above the paths of all sources together.
const ALL: &str = "/clusters/*";
/// The annotation with the name of an object's source.
pub(crate) const CLUSTER: &str = "keelson.io/cluster";
/// The largest number of lists at the same time for which one source is asked. A user has a share of them.
const LISTS: usize = 64;
/// The largest number of sources that are asked at the same time for one request.
const ASKED_AT_ONCE: usize = 128;
/// The longest time for the parts of one source. A source that is away shows after six seconds.
const SOURCE_TIME: Duration = Duration::from_secs(8);
/// A source that did not answer in this time is not asked for this time.
const REST: Duration = Duration::from_secs(10);

/// The parts of the gateway that lists over several sources share.
pub(crate) struct MergeContext {
    seal: TokenSeal,
    pages: MergedPages,
    callers: Callers,
}

/// A source as a member of the fleet.
#[derive(Clone)]
pub(crate) struct Member {
    name: String,
    labels: BTreeMap<String, String>,
    mirrors: Arc<Mirrors>,
    pipeline: Arc<Pipeline>,
    /// The end of the time in which the source is not asked.
    resting: Arc<Mutex<Option<Instant>>>,
    lists: MergedLists,
}

/// The lists over all sources.
pub(crate) struct Fleet {
    merging: Arc<MergeContext>,
    members: Vec<Member>,
}

/// The lists over the permitted namespaces of one source.
pub(crate) struct PermittedLists {
    merging: Arc<MergeContext>,
    name: String,
    mirrors: Arc<Mirrors>,
    resting: Arc<Mutex<Option<Instant>>>,
    lists: MergedLists,
}

impl MergeContext {
    /// Reads the key for tokens, or makes one in the directory.
    ///
    /// # Errors
    /// The key can't be read or written.
    pub(crate) fn open(directory: &Path, random: Arc<dyn Random>) -> Result<Arc<Self>, String> {
        let seal = token::seal(directory, random)?;
        Ok(Arc::new(Self { seal, pages: MergedPages::default(), callers: Callers::default() }))
    }

    /// Answers a request over these members, in the order of their names. With `marks`, objects name their source.
    async fn answer(
        &self,
        members: &[Member],
        marks: bool,
        client: &dyn ClientConnection,
        (parts, at): (&Parts, &Uri),
    ) -> Result<Response<ResponseBody>, ApiError> {
        let caller = self.callers.enter(client, &parts.headers)?;
        let mut ask = FleetRequest::parse(parts, at, marks)?;
        let members = ask.choose(members, &self.seal)?;
        let ask = &ask;
        let mut asked = Vec::with_capacity(members.len());
        for member in members {
            asked.push(member.outcome(ask, client));
        }
        let mut outcomes: Vec<(&Member, Outcome)> = stream::iter(asked).buffer_unordered(ASKED_AT_ONCE).collect().await;
        if outcomes.iter().any(|(_, outcome)| outcome.is_of_known_user()) {
            caller.remember();
        }
        outcomes.sort_by(|(one, _), (other, _)| one.name.cmp(&other.name));
        answer::compose(self, ask, outcomes).await
    }
}

impl Member {
    pub(crate) fn new(
        name: &str,
        mut labels: BTreeMap<String, String>,
        mirrors: Arc<Mirrors>,
        pipeline: Arc<Pipeline>,
    ) -> Self {
        labels.insert("kubernetes.io/metadata.name".to_owned(), name.to_owned());
        Self {
            name: name.to_owned(),
            labels,
            mirrors,
            pipeline,
            resting: Arc::default(),
            lists: MergedLists::new(LISTS),
        }
    }

    /// The result of this source. A source that does not answer delays no more than one request in a while. A list that
    /// takes long here, after the source has allowed it, says nothing about the source.
    fn outcome<'a>(
        &'a self,
        ask: &'a FleetRequest,
        client: &'a dyn ClientConnection,
    ) -> BoxFuture<'a, (&'a Self, Outcome)> {
        Box::pin(async move {
            if self.resting.lock().is_some_and(|until| Instant::now() < until) {
                return (self, Outcome::Missing(Missing::Away));
            }
            let share = ListShare::default();
            let Ok(outcome) = timeout(SOURCE_TIME, permitted::outcome(self, ask, client, &share)).await else {
                if !share.is_taken() {
                    *self.resting.lock() = Some(Instant::now() + REST);
                }
                return (self, Outcome::Missing(Missing::Away));
            };
            (self, outcome)
        })
    }
}

impl Fleet {
    pub(crate) fn new(merging: Arc<MergeContext>, mut members: Vec<Member>) -> Self {
        members.sort_by(|one, other| one.name.cmp(&other.name));
        Self { merging, members }
    }
}

impl FanOut for Fleet {
    fn takes(&self, uri: &Uri) -> bool {
        rest_of(uri).is_some()
    }

    fn answer<'a>(
        &'a self,
        _: &'a Arc<Pipeline>,
        client: &'a dyn ClientConnection,
        parts: Parts,
    ) -> BoxFuture<'a, Response<ResponseBody>> {
        Box::pin(async move {
            let form = negotiation::error_form(&parts);
            let Some(at) = rest_of(&parts.uri) else { return respond::no_such_page() };
            // The sources verify tokens, and the certificate of a connection is verified for a single source only.
            let client = WithoutCertificate(client);
            let answered = self.merging.answer(&self.members, true, &client, (&parts, &at)).await;
            answered.unwrap_or_else(|error| respond::error(&error, form))
        })
    }
}

impl PermittedLists {
    pub(crate) fn new(merging: Arc<MergeContext>, name: &str, mirrors: Arc<Mirrors>) -> Self {
        let lists = MergedLists::new(LISTS);
        Self { merging, name: name.to_owned(), mirrors, resting: Arc::default(), lists }
    }
}

impl FanOut for PermittedLists {
    fn takes(&self, uri: &Uri) -> bool {
        ask::wants_permitted(uri)
    }

    fn answer<'a>(
        &'a self,
        own: &'a Arc<Pipeline>,
        client: &'a dyn ClientConnection,
        parts: Parts,
    ) -> BoxFuture<'a, Response<ResponseBody>> {
        Box::pin(async move {
            let form = negotiation::error_form(&parts);
            let Self { name, mirrors, resting, lists, .. } = self;
            let (resting, lists) = (resting.clone(), lists.clone());
            let member = Member::new(name, BTreeMap::new(), mirrors.clone(), own.clone());
            let member = Member { resting, lists, ..member };
            let at = parts.uri.clone();
            let answered = self.merging.answer(&[member], false, client, (&parts, &at)).await;
            answered.unwrap_or_else(|error| respond::error(&error, form))
        })
    }
}

/// The path at each source of a request to all sources.
fn rest_of(uri: &Uri) -> Option<Uri> {
    let rest = uri.path_and_query()?.as_str().strip_prefix(ALL)?;
    rest.starts_with('/').then(|| rest.parse().ok())?
}
