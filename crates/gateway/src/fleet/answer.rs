//! The response to a list over several sources or namespaces, from the results of its parts.
//!
//! Sources that are missing are named in a header field and a warning. If no source knows the caller, no source is named.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use http::Response;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use keelson_access::User;
use keelson_cache::Entry;
use keelson_codec::StoredObject;
use keelson_http::body::ResponseBody;
use keelson_http::handlers::MergedPage;
use keelson_http::respond;
use keelson_meta::clock::rfc3339;
use keelson_meta::json::Value;
use keelson_meta::{ApiError, GroupResource, Revision};
use keelson_registry::{FailedEvaluations, Group, Groups, OrderedResult, Target};
use keelson_supervision::turns::blocking;
use keelson_tables::Column;
use tokio::task::yield_now;

use super::ask::{FleetRequest, Grouping, MOST_OBJECTS};
use super::merge::{Place, Run, merged, split};
use super::parts::{Missing, Outcome, Part, PartResult};
use super::token::Position;
use super::{CLUSTER, Member, MergeContext};
use crate::progress::Age;
use crate::reads::mark;

/// The field with the sources that are missing from a response, each with the reason.
const MISSING: HeaderName = HeaderName::from_static("keelson-missing-clusters");
/// The field with the sources whose state is old, each with the time of its state.
const STALE: HeaderName = HeaderName::from_static("keelson-stale-clusters");
/// The largest page in bytes of objects. A page with more ends early.
const MOST_BYTES: u64 = 32 << 20;
/// The number of objects that are found before the task yields.
const CUT_AT_ONCE: usize = 512;
/// The number of groups without a limit, and the largest number.
const GROUPS: (usize, usize) = (100, 1_000);
/// The first column of tables.
const COLUMN: Column<'static> = Column::text("Cluster", "The cluster that the object is in.");

/// The answered parts of a source.
struct SourceParts {
    cluster: String,
    parts: Vec<Part>,
    user: Arc<User>,
}

/// Makes the response.
///
/// # Errors
/// 400 for the token of another user, 401, 403, 404 or 503 if no source has an answer.
pub(super) async fn compose(
    merging: &MergeContext,
    ask: &FleetRequest,
    outcomes: Vec<(&Member, Outcome)>,
) -> Result<Response<ResponseBody>, ApiError> {
    let (mut answered, mut missing) = (Vec::new(), Vec::new());
    for (member, outcome) in outcomes {
        match outcome {
            Outcome::Answered(parts, user) => {
                answered.push(SourceParts { cluster: member.name.clone(), parts, user });
            }
            Outcome::Missing(why) => missing.push((member.name.clone(), why)),
            Outcome::Refused(response) => return Ok(response),
        }
    }
    if let Some(position) = &ask.position {
        for SourceParts { cluster, user, .. } in &answered {
            position.check_user(cluster, &user.name)?;
        }
        // A source that was missing from the first page is missing from all.
        let asked: Vec<&String> =
            answered.iter().map(|one| &one.cluster).chain(missing.iter().map(|one| &one.0)).collect();
        let gone = position.revisions.iter().filter(|(name, _)| !asked.contains(&name));
        let gone: Vec<_> = gone.map(|(name, _)| (name.clone(), Missing::Away)).collect();
        missing.extend(gone);
        missing.sort_by(|one, other| one.0.cmp(&other.0));
    }
    if answered.is_empty() {
        return Err(nothing(ask, &missing));
    }
    if ask.requires_all && !missing.is_empty() {
        let message = format!("the list is not complete: {}", listed(&missing));
        return Err(ApiError::ServiceUnavailable { message, retry_after_seconds: Some(1) });
    }
    let ages: Vec<(String, Age)> =
        answered.iter().flat_map(|one| one.parts.iter().map(|part| (one.cluster.clone(), part.age))).collect();
    let mut warnings: Vec<String> = Vec::new();
    for part in answered.iter_mut().flat_map(|one| &mut one.parts) {
        warnings.append(&mut part.warnings);
    }
    let mut response = match ask.grouping {
        Grouping::None => page(merging, ask, answered, &missing).await?,
        Grouping::Clusters | Grouping::Values => groups(merging, ask, answered, &missing)?,
    };
    add_headers(response.headers_mut(), &missing, &ages, ask.marks);
    respond::add_warnings(response.headers_mut(), &warnings);
    Ok(response)
}

/// The error if no source has an answer.
fn nothing(ask: &FleetRequest, missing: &[(String, Missing)]) -> ApiError {
    let all = |reason: Missing| missing.iter().all(|(_, why)| *why == reason);
    let any = |reason: Missing| missing.iter().any(|(_, why)| *why == reason);
    let resource = GroupResource { group: ask.info.group.clone(), resource: ask.info.resource.clone() };
    if any(Missing::Forbidden) {
        let message = "the caller may list it in no cluster and no namespace of the request".to_owned();
        return ApiError::Refused { resource, name: String::new(), message, causes: Vec::new() };
    }
    if all(Missing::Unknown) {
        return ApiError::Unauthorized;
    }
    if all(Missing::Busy) {
        return ApiError::TooManyRequests { retry_after_seconds: 1 };
    }
    if all(Missing::NotMirrored) {
        return ApiError::UnknownResource;
    }
    // The caller may be unknown everywhere, so the message has no names.
    let message = "no cluster of the request has an answer now, please try again later".to_owned();
    ApiError::ServiceUnavailable { message, retry_after_seconds: Some(1) }
}

/// Formats the missing clusters for a header, each with its reason.
fn listed(missing: &[(String, Missing)]) -> String {
    missing.iter().map(|(name, why)| format!("{name}={}", why.word())).collect::<Vec<_>>().join(", ")
}

/// Adds the headers for the age of the state, the missing clusters and the stale ones.
fn add_headers(headers: &mut HeaderMap, missing: &[(String, Missing)], ages: &[(String, Age)], marks: bool) {
    let lag = ages.iter().map(|(_, age)| age.lag).max().unwrap_or_default();
    let as_of = ages.iter().filter_map(|(_, age)| age.as_of).min();
    mark(headers, Age { lag, as_of });
    if !marks {
        return;
    }
    let mut field = |name: HeaderName, text: &str| {
        if let Ok(value) = HeaderValue::from_str(text) {
            headers.insert(name, value);
        }
    };
    let mut stale: BTreeMap<&str, SystemTime> = BTreeMap::new();
    for (name, age) in ages {
        stale.extend(age.as_of.map(|as_of| (&**name, as_of)));
    }
    let stale: Vec<_> = stale.into_iter().map(|(name, as_of)| format!("{name}={}", rfc3339(as_of))).collect();
    if !stale.is_empty() {
        field(STALE, &stale.join(", "));
    }
    if !missing.is_empty() {
        field(MISSING, &listed(missing));
    }
    if !missing.is_empty() {
        respond::add_warning(headers, &format!("this list lacks clusters: {}", listed(missing)));
    }
    if !stale.is_empty() {
        respond::add_warning(headers, &format!("this list has old states of clusters: {}", stale.join(", ")));
    }
}

/// The revisions of the sources, with the position behind a page.
fn position(answered: &[SourceParts], missing: &[(String, Missing)], after: Option<Place>) -> Position {
    let known = answered.iter().filter_map(|one| {
        let revision = one.parts.first()?.revision();
        Some((one.cluster.clone(), Some(revision), one.user.name.clone()))
    });
    let first = answered.first().map(|one| one.user.name.clone()).unwrap_or_default();
    let mut all: Vec<_> = known.chain(missing.iter().map(|(name, _)| (name.clone(), None, first.clone()))).collect();
    all.sort();
    let (revisions, users) = all.into_iter().map(|(name, revision, user)| ((name, revision), user)).unzip();
    Position { revisions, users, after }
}

/// The text in place of a list's revision: that of a single source is a number.
fn revisions(
    merging: &MergeContext,
    ask: &FleetRequest,
    answered: &[SourceParts],
    missing: &[(String, Missing)],
) -> Result<String, ApiError> {
    if !ask.marks {
        let revision = answered.first().and_then(|one| one.parts.first()).map(Part::revision);
        return Ok(revision.unwrap_or_default().to_string());
    }
    position(answered, missing, None).seal(&merging.seal, &ask.resource())
}

/// The objects of a page, with their sources.
struct PageItems {
    items: Vec<(Arc<str>, Arc<Entry>)>,
    last: Option<Place>,
    total: usize,
    remaining: usize,
}

async fn cut(ask: &FleetRequest, runs: &[Run<'_, OrderedResult>]) -> Result<PageItems, ApiError> {
    let total: usize = runs.iter().map(|run| run.result.len()).sum();
    let limit = ask.limit.unwrap_or(MOST_OBJECTS).min(MOST_OBJECTS);
    let after = ask.position.as_ref().filter(|_| ask.is_continued).and_then(|position| position.after.as_ref());
    let begins = match after {
        Some(after) => runs.iter().map(|run| run.through(after)).collect(),
        None => split(runs, ask.page.map_or(0, |page| (page - 1).saturating_mul(limit))),
    };
    let (mut items, mut last, mut bytes) = (Vec::new(), None, 0);
    for (at, place) in merged(runs, &begins).take(limit) {
        let missing =
            || ApiError::Internal(format!("{:?} stands in a view of a snapshot that it is not in", place.key));
        let entry = runs[at].result.entry(&place.key).ok_or_else(missing)?;
        bytes += entry.list_bytes();
        // Pages of numbers have their length from the request.
        if bytes > MOST_BYTES && !items.is_empty() {
            if ask.page.is_some() {
                return Err(ApiError::BadRequest(format!(
                    "the page has more than {MOST_BYTES} bytes: use a smaller limit"
                )));
            }
            break;
        }
        items.push((Arc::from(runs[at].cluster), entry.clone()));
        last = Some(place);
        if items.len().is_multiple_of(CUT_AT_ONCE) {
            yield_now().await;
        }
    }
    let remaining = total - (begins.iter().sum::<usize>() + items.len()).min(total);
    Ok(PageItems { items, last, total, remaining })
}

async fn page(
    merging: &MergeContext,
    ask: &FleetRequest,
    mut answered: Vec<SourceParts>,
    missing: &[(String, Missing)],
) -> Result<Response<ResponseBody>, ApiError> {
    let PageItems { items, last, total, remaining } = {
        let all = answered.iter().flat_map(|one| one.parts.iter().map(|part| (&*one.cluster, part)));
        let runs: Vec<_> = all
            .filter_map(|(cluster, part)| match &part.found {
                PartResult::Ordered(result) => Some(Run { cluster, result }),
                PartResult::Counted(_) => None,
            })
            .collect();
        cut(ask, &runs).await?
    };
    let token = match last.filter(|_| remaining > 0) {
        Some(last) => Some(position(&answered, missing, Some(last)).seal(&merging.seal, &ask.list())?),
        None => None,
    };
    let mut failures = FailedEvaluations::default();
    for part in answered.iter().flat_map(|one| &one.parts) {
        if let PartResult::Ordered(result) = &part.found {
            failures.count += result.failures.count;
            failures.first = failures.first.or_else(|| result.failures.first.clone());
        }
    }
    let position = revisions(merging, ask, &answered, missing)?;
    let items = match ask.marks {
        true => blocking(move || items.iter().map(|(cluster, entry)| marked(cluster, entry)).collect()).await,
        false => items.into_iter().map(|(_, entry)| entry).collect(),
    };
    let first = answered.swap_remove(0).parts.swap_remove(0);
    let target = if ask.marks { headed(&first.target) } else { first.target.clone() };
    let page = MergedPage {
        position,
        remaining: token.is_some().then_some(remaining as u64),
        continue_token: token,
        items,
        total,
        failures,
    };
    first.mirror.handlers().merged_page(&target, first.request, page, &merging.pages).await
}

/// The object with the name of its source.
fn marked(cluster: &str, entry: &Arc<Entry>) -> Arc<Entry> {
    let mut object = entry.object().decode(Revision::ZERO);
    let metadata = object.metadata_mut();
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.insert(CLUSTER, cluster);
    } else {
        let mut annotations = keelson_meta::json::Map::new();
        annotations.insert(CLUSTER, cluster);
        metadata.insert("annotations", Value::Object(annotations));
    }
    Arc::new(entry.with_object(StoredObject::encode(&object)))
}

/// The target with the source in the first column of tables.
fn headed(target: &Target) -> Target {
    let version = (*target.version).clone();
    let printer = version.printer().clone().headed_by(COLUMN, CLUSTER);
    Target { version: Arc::new(version.with_printer(printer)), ..target.clone() }
}

fn groups(
    merging: &MergeContext,
    ask: &FleetRequest,
    mut answered: Vec<SourceParts>,
    missing: &[(String, Missing)],
) -> Result<Response<ResponseBody>, ApiError> {
    let mut failures = FailedEvaluations::default();
    // By sort key, or by source.
    let mut values: BTreeMap<Vec<u8>, Group> = BTreeMap::new();
    let mut add = |place: Vec<u8>, value: Option<Value>, count: usize| {
        values.entry(place).or_insert(Group { value, count: 0 }).count += count;
    };
    for one in &answered {
        for part in &one.parts {
            let failed = match &part.found {
                PartResult::Ordered(result) => {
                    add(one.cluster.clone().into_bytes(), Some(Value::from(&*one.cluster)), result.len());
                    &result.failures
                }
                PartResult::Counted(found) => {
                    found.values.iter().for_each(|value| add(value.place.clone(), value.value.clone(), value.count));
                    &found.failures
                }
            };
            failures.count += failed.count;
            failures.first = failures.first.or_else(|| failed.first.clone());
        }
    }
    let total = values.len();
    let mut groups: Vec<Group> = values.into_values().collect();
    // The sort is stable, so that groups of one size stay in order.
    groups.sort_by_key(|group| Reverse(group.count));
    groups.truncate(ask.limit.unwrap_or(GROUPS.0).min(GROUPS.1));
    let position = revisions(merging, ask, &answered, missing)?;
    let first = answered.swap_remove(0).parts.swap_remove(0);
    let groups = Groups { revision: first.revision(), groups, total, looked_at: 0, failures };
    first.mirror.handlers().merged_groups(&first.request, &groups, &position)
}
