//! The search over all resources: objects whose name, namespace, labels or images contain words.
//!
//! It is a page below `/apis`, which every authenticated user may get by the default roles. The rights to objects are
//! those of lists: each resource is authorized as a list of all namespaces, or else as a list of each named namespace.
//!
//! Invariant: a collection or namespace that the caller may not list is not read. So neither results nor counts nor
//! durations depend on its objects.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, stream};
use http::request::Parts;
use http::{Method, Response, StatusCode};
use keelson_access::{Attributes, ResourceAttributes};
use keelson_meta::ApiError;
use keelson_meta::json::{Map, Value};
use keelson_meta::options::Query as Pairs;
use keelson_query::{GROUP_VERSION, MatchKind, Query};
use keelson_registry::{Caller, MatchedPlaces, Matches, ServedApis, ServedResource, Target};
use keelson_resources::Verb;
use tokio::time::timeout;

use crate::body::ResponseBody;
use crate::negotiation::negotiate_document;
use crate::request_query::RequestQuery;
use crate::respond;
use crate::service::ApiService;

/// The path of the search.
pub(crate) const PATH: &str = "/apis/keelson.io/search";
/// The seats of a search in flow control.
pub(crate) const SEATS: u64 = 4;

/// The maximum length of the words in bytes.
const MAX_TEXT: usize = 256;
/// The maximum number of named namespaces, and of resources that are left out.
const MAX_NAMESPACES: usize = 16;
const MAX_EXCEPTIONS: usize = 32;
/// The number of objects in a response.
const USUAL_LIMIT: usize = 20;
const MAX_LIMIT: usize = 100;
/// The number of collections that one search reads at the same time.
const AT_ONCE: usize = 8;
/// The longest time for one collection. A collection that needs a conversion webhook may take longer.
const COLLECTION_TIME: Duration = Duration::from_secs(2);

/// The parameters of a search.
struct Search<'q> {
    query: Query,
    /// The namespaces of resources that the caller may not list as a whole.
    namespaces: Vec<&'q str>,
    /// The resources to leave out, as `plural.group`.
    except: Vec<&'q str>,
    limit: usize,
}

/// The result of one collection, or of one namespace in it.
struct Found {
    target: Target,
    matches: Option<Matches>,
}

impl<'q> Search<'q> {
    fn parse(pairs: &'q Pairs<'_>) -> Result<Self, ApiError> {
        let refused = |why: String| Err(ApiError::BadRequest(why));
        let text = pairs.get("q").unwrap_or_default();
        if text.len() > MAX_TEXT {
            return refused(format!("q: the words have at most {MAX_TEXT} bytes"));
        }
        let query = [("keelson.io/search", text), ("keelson.io/matches", "true")];
        let query = Query::parse(query.into_iter()).map_err(|error| ApiError::BadRequest(error.to_string()))?;
        let query = query.ok_or_else(|| ApiError::BadRequest("q: words to search for are expected".to_owned()))?;
        let names = |name: &str| -> Vec<&'q str> {
            let text = pairs.get(name).unwrap_or_default();
            text.split(',').filter(|name| !name.is_empty()).collect::<BTreeSet<_>>().into_iter().collect()
        };
        let (namespaces, except) = (names("namespaces"), names("except"));
        if namespaces.len() > MAX_NAMESPACES || except.len() > MAX_EXCEPTIONS {
            return refused(format!(
                "at most {MAX_NAMESPACES} namespaces are searched, and at most {MAX_EXCEPTIONS} resources left out"
            ));
        }
        let limit = match pairs.get("limit").map(str::parse::<usize>) {
            None => USUAL_LIMIT,
            Some(Ok(limit)) if (1..=MAX_LIMIT).contains(&limit) => limit,
            Some(_) => return refused(format!("limit: a number from 1 to {MAX_LIMIT} is expected")),
        };
        Ok(Self { query, namespaces, except, limit })
    }

    /// The collections to search, in the preferred version of their resources.
    fn targets(&self, surface: &Arc<ServedApis>) -> Vec<Target> {
        let resources = surface.resources().filter(|resource| resource.storage_kind().is_some());
        let resources = resources.filter(|resource| !self.except.contains(&&*resource.group_resource().to_string()));
        let of_version = |resource: &Arc<ServedResource>| {
            let version = resource.versions().iter().find(|version| !version.hidden)?;
            surface.lookup(&resource.group, &version.name, &resource.plural)
        };
        let targets = resources.filter_map(of_version);
        targets.filter(|target| target.version.verbs.contains(&Verb::List)).collect()
    }
}

/// Answers a search in the resources of a surface.
///
/// # Errors
/// 400 for a parameter, 405 for another method.
pub(crate) async fn answer(
    surface: &Arc<ServedApis>,
    service: &dyn ApiService,
    (parts, query, caller): (&Parts, &RequestQuery, &Caller),
) -> Result<Response<ResponseBody>, ApiError> {
    if query.is_extended() {
        return Err(query.refusal_beyond_reads());
    }
    if parts.method != Method::GET && parts.method != Method::HEAD {
        return Err(ApiError::MethodNotAllowed);
    }
    let search = Search::parse(query.pairs())?;
    let targets = search.targets(surface);
    let mut searches = Vec::with_capacity(targets.len());
    for target in targets {
        searches.push(in_collection(&search, service, caller, target));
    }
    let found: Vec<Vec<Found>> = stream::iter(searches).buffer_unordered(AT_ONCE).collect().await;
    let found: Vec<Found> = found.into_iter().flatten().collect();
    document(surface, &found, search.limit, parts)
}

/// Searches one collection: all of it, or the named namespaces that the caller may list.
async fn in_collection(search: &Search<'_>, service: &dyn ApiService, caller: &Caller, target: Target) -> Vec<Found> {
    let mut permitted = Vec::new();
    if may_list(caller, &target).await {
        permitted.push(target);
    } else if target.is_namespaced() {
        for namespace in &search.namespaces {
            let target = target.clone().in_namespace(Some(namespace));
            if may_list(caller, &target).await {
                permitted.push(target);
            }
        }
    }
    let mut found = Vec::with_capacity(permitted.len());
    for target in permitted {
        let searching = service.search(target.clone(), caller.clone(), search.query.clone(), search.limit);
        let matches = timeout(COLLECTION_TIME, searching).await.ok().and_then(Result::ok);
        found.push(Found { target, matches });
    }
    found
}

/// Returns true if the caller may list the objects of a target. An authorizer that fails permits nothing.
async fn may_list(caller: &Caller, target: &Target) -> bool {
    let attributes = Attributes::Resource(ResourceAttributes {
        verb: Verb::List.as_str(),
        group: &target.resource.group,
        version: &target.version.name,
        resource: &target.resource.plural,
        subresource: None,
        namespace: target.namespace.as_deref(),
        name: None,
        label_selector: None,
        field_selector: None,
    });
    caller.authorizer().authorize(caller.user(), &attributes).await.is_allowed()
}

/// The response: the best objects of all collections, the counts of each, and the names of unfinished resources.
fn document(
    surface: &ServedApis,
    found: &[Found],
    limit: usize,
    parts: &Parts,
) -> Result<Response<ResponseBody>, ApiError> {
    let mut items: Vec<(u64, &Target, &MatchedPlaces)> = Vec::new();
    let (mut counts, mut unfinished) = (Vec::new(), BTreeSet::new());
    for Found { target, matches } in found {
        let Some(matches) = matches else {
            unfinished.insert(target.group_resource().to_string());
            continue;
        };
        items.extend(matches.objects.iter().map(|object| (score(object), target, object)));
        if matches.total > 0 {
            let mut count = named(target);
            if let Some(namespace) = &target.namespace {
                count.insert("namespace", Value::from(namespace.as_str()));
            }
            count.insert("count", Value::from(matches.total));
            counts.push((matches.total, Value::Object(count)));
        }
    }
    let key = |(score, target, object): &(u64, &Target, &MatchedPlaces)| {
        let name = (object.name.len(), object.name.clone(), object.namespace.clone());
        (std::cmp::Reverse(*score), name, target.group_resource().to_string())
    };
    items.sort_by_cached_key(key);
    items.truncate(limit);
    counts.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    let mut groups: Vec<&str> = surface.groups().collect();
    groups.sort_unstable();
    let mut document = Map::new();
    document.insert("kind", Value::from("ObjectSearch"));
    document.insert("apiVersion", Value::from(format!("{}/{}", GROUP_VERSION.0, GROUP_VERSION.1)));
    document.insert("items", Value::Array(items.into_iter().map(item).collect()));
    document.insert("counts", Value::Array(counts.into_iter().map(|(_, count)| count).collect()));
    document.insert("groups", Value::Array(groups.into_iter().map(Value::from).collect()));
    document.insert("unfinished", Value::Array(unfinished.into_iter().map(Value::from).collect()));
    Ok(respond::value(StatusCode::OK, &Value::Object(document), negotiate_document(parts)?))
}

fn score(object: &MatchedPlaces) -> u64 {
    object.matches.iter().map(|word| u64::from(word.points)).sum()
}

fn item((score, target, object): (u64, &Target, &MatchedPlaces)) -> Value {
    let mut item = named(target);
    item.insert("kind", Value::from(target.kind().kind.as_str()));
    if let Some(namespace) = &object.namespace {
        item.insert("namespace", Value::from(namespace.as_str()));
    }
    item.insert("name", Value::from(object.name.as_str()));
    item.insert("score", Value::from(score));
    // A word that is found with typing errors alone.
    let is_similar = object.matches.iter().any(|word| word.manner == MatchKind::Error);
    item.insert("isSimilar", Value::from(is_similar));
    Value::Object(item)
}

fn named(target: &Target) -> Map {
    let mut named = Map::new();
    named.insert("group", Value::from(&*target.resource.group));
    named.insert("version", Value::from(&*target.version.name));
    named.insert("resource", Value::from(&*target.resource.plural));
    named
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use futures::future::{BoxFuture, ready};
    use http::Request;
    use http_body_util::BodyExt as _;
    use keelson_access::{Authorizer, Decision, PendingVerdict, User, Verdict};
    use keelson_meta::Revision;
    use keelson_query::WordMatch;
    use keelson_registry::FailedEvaluations;
    use parking_lot::Mutex;

    use super::*;
    use crate::request_info::RequestInfo;
    use crate::service::ApiRequest;

    /// Has one object in each collection and namespace, and records which of them are read.
    #[derive(Default)]
    struct OneOfEach(Mutex<Vec<String>>);

    impl ApiService for OneOfEach {
        fn call(&self, _: Box<ApiRequest>, _: Target) -> BoxFuture<'static, Response<ResponseBody>> {
            Box::pin(async { respond::no_such_page() })
        }

        fn search(&self, target: Target, _: Caller, _: Query, _: usize) -> BoxFuture<'_, Result<Matches, ApiError>> {
            let namespace = target.namespace.clone();
            self.0.lock().push(format!("{}/{}", target.group_resource(), namespace.as_deref().unwrap_or("*")));
            let word = WordMatch {
                word: "web".to_owned(),
                field: ".metadata.name".to_owned(),
                text: "web".to_owned(),
                manner: MatchKind::WholeText,
                points: 300,
            };
            let objects = vec![MatchedPlaces { namespace, name: "web".to_owned(), matches: vec![word] }];
            let failures = FailedEvaluations::default();
            let (total, looked_at) = (7, 7);
            let matches = Matches {
                revision: Revision::ZERO,
                continue_token: None,
                remaining: None,
                objects,
                total,
                looked_at,
                failures,
            };
            ready(Ok(matches)).boxed()
        }
    }

    /// Permits lists of services everywhere, and of secrets in the namespace `shop`. It fails for config maps.
    #[derive(Debug)]
    struct Shop;

    impl Authorizer for Shop {
        fn authorize<'a>(&'a self, _: &'a User, attributes: &'a Attributes<'a>) -> PendingVerdict<'a> {
            let Attributes::Resource(of) = attributes else { panic!("only resources are authorized") };
            assert_eq!((of.verb, of.name, of.subresource), ("list", None, None));
            let decision = match (of.resource, of.namespace) {
                ("services", None) | ("secrets", Some("shop")) => Decision::Allow,
                _ => Decision::NoOpinion,
            };
            futures::future::Either::Left(ready(Verdict::new(decision, "")))
        }
    }

    async fn check(query: &str, expect: Result<&[&str], &str>) -> String {
        let surface = keelson_builtin::surface();
        let service = OneOfEach::default();
        let parts = Request::get(format!("{PATH}?{query}")).body(()).unwrap().into_parts().0;
        let info = RequestInfo::parse(&parts.method, &parts.uri);
        assert!(!info.is_resource_request, "the roles of pages permit it");
        let (query_of, caller) =
            (RequestQuery::parse(&info, &parts.uri), Caller::new(Arc::new(User::default()), Arc::new(Shop)));
        let answered = answer(&surface, &service, (&parts, &query_of, &caller)).await;
        let mut read = service.0.lock().clone();
        read.sort();
        match (answered, expect) {
            (Ok(response), Ok(expect)) => {
                assert_eq!(read, expect, "{query}");
                let body = response.into_body().collect().await.unwrap().to_bytes();
                String::from_utf8(body.to_vec()).unwrap()
            }
            (Err(error), Err(expect)) => {
                let message = error.status().message;
                assert!(message.contains(expect) && read.is_empty(), "{query}: {message}");
                message
            }
            (answered, _) => panic!("{query}: {:?}", answered.map(|response| response.status())),
        }
    }

    #[tokio::test]
    async fn collections_that_may_not_be_listed_are_not_read() {
        check("q=web", Ok(&["services/*"])).await;
        check("q=web&namespaces=other,shop,shop", Ok(&["secrets/shop", "services/*"])).await;
        check("q=web&namespaces=other", Ok(&["services/*"])).await;
        let found = check("q=web&namespaces=shop&except=services", Ok(&["secrets/shop"])).await;
        assert!(found.contains("\"name\":\"web\"") && found.contains("\"count\":7") && !found.contains("services"));
        assert!(!check("q=web&except=services", Ok(&[])).await.contains("web"));
    }

    #[tokio::test]
    async fn invalid_and_unbounded_searches_are_refused() {
        check("", Err("a word to search for is expected")).await;
        check(&format!("q={}", "a".repeat(300)), Err("at most 256 bytes")).await;
        check("q=a+b+c+d+e+f+g+h+i", Err("at most 8 words")).await;
        check("q=a&limit=0", Err("a number from 1 to 100")).await;
        check("q=a&limit=101", Err("a number from 1 to 100")).await;
        let namespaces: Vec<String> = (0..17).map(|number| format!("n{number}")).collect();
        check(&format!("q=a&namespaces={}", namespaces.join(",")), Err("at most 16 namespaces")).await;
        check("q=a&keelson.io/page=1", Err("for reads of objects alone")).await;
    }
}
