//! A request for a list over several sources or namespaces: what its parts are asked, and what is decided here.
//!
//! Limits, pages, tokens and revisions concern the whole, so no part gets them as they are.

use http::header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, HeaderMap, HeaderValue, USER_AGENT};
use http::request::Parts;
use http::{Method, Uri};
use keelson_access::TokenSeal;
use keelson_http::proxy::CLUSTER_TOKEN_PREFIX;
use keelson_http::request_info::{RequestInfo, RequestVerb};
use keelson_meta::label_selector::LabelSelector;
use keelson_meta::options::Query;
use keelson_meta::{ApiError, Revision};
use keelson_resources::Verb;

use super::token::Position;
use super::{CLUSTER, Member};
use crate::upstream_store::encoded;

/// The parameters of these lists.
const SELECTOR: &str = "keelson.io/clusterSelector";
const PERMITTED: &str = "keelson.io/permittedNamespaces";
const REQUIRE_ALL: &str = "keelson.io/requireAll";
/// Parameters of queries.
const GROUP_BY: &str = "keelson.io/groupBy";
const MATCHES: &str = "keelson.io/matches";
const AT: &str = "keelson.io/at";
const PAGE: &str = "keelson.io/page";
/// The fields that each of several sources gets. All others concern the connection or the client.
const PASSED: [http::HeaderName; 3] = [ACCEPT, ACCEPT_ENCODING, USER_AGENT];
/// The parameters that decide neither the objects nor their order.
const UNBOUND: [&str; 6] = [
    "keelson.io/fields",
    "keelson.io/omitManagedFields",
    "keelson.io/count",
    "includeObject",
    "pretty",
    "timeoutSeconds",
];
/// The largest page in objects.
pub(super) const MOST_OBJECTS: usize = 5_000;

/// The counted values of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Grouping {
    None,
    /// The objects of each source.
    Clusters,
    /// The objects with each value.
    Values,
}

/// The revisions that a request names.
#[derive(Clone, Debug)]
enum Revisions {
    /// The newest ones.
    Newest,
    /// Any.
    Any,
    /// The revision of the single source.
    Of(String),
    /// The revisions of an earlier response.
    Sealed(String),
}

/// A request.
pub(crate) struct FleetRequest {
    pub(super) info: RequestInfo,
    pub(super) path: String,
    /// True if objects name their source.
    pub(super) marks: bool,
    /// True for a list over the permitted namespaces.
    pub(super) permitted: bool,
    /// True if the response must have all sources.
    pub(super) requires_all: bool,
    pub(super) grouping: Grouping,
    pub(super) limit: Option<usize>,
    /// The number of a page, from 1.
    pub(super) page: Option<usize>,
    /// The position to continue at, or the revisions to read at.
    pub(super) position: Option<Position>,
    /// True if the position is that of a token.
    pub(super) is_continued: bool,
    headers: HeaderMap,
    pairs: Vec<(String, String)>,
    selector: LabelSelector,
    selector_text: String,
    token: Option<String>,
    revisions: Revisions,
    version_match: Option<String>,
}

/// Returns true for a list over the permitted namespaces.
pub(super) fn wants_permitted(uri: &Uri) -> bool {
    let query = uri.query().unwrap_or_default();
    query.contains("ermittedNamespaces") && Query::parse(query).get(PERMITTED).is_some()
}

fn refused<T>(why: impl Into<String>) -> Result<T, ApiError> {
    Err(ApiError::BadRequest(why.into()))
}

fn switch(name: &str, value: &str) -> Result<bool, ApiError> {
    match value {
        "true" => Ok(true),
        "false" => Ok(false),
        other => refused(format!("{name}: true or false is expected, not {other:?}")),
    }
}

impl FleetRequest {
    /// Reads a request for `at`, the path and query at each source.
    ///
    /// # Errors
    /// 400, 404 or 405 for a request that is no list, or that can't be answered over several sources.
    pub(super) fn parse(parts: &Parts, at: &Uri, marks: bool) -> Result<Self, ApiError> {
        let info = RequestInfo::parse(&parts.method, at);
        if parts.method != Method::GET && parts.method != Method::HEAD {
            return Err(ApiError::MethodNotAllowed);
        }
        if !info.is_resource_request {
            return Err(ApiError::UnknownResource);
        }
        if info.verb != RequestVerb::Resource(Verb::List) || info.subresource.is_some() {
            return refused("only lists are over several clusters or namespaces: use the path of one");
        }
        let mut ask = Self {
            path: at.path().to_owned(),
            marks,
            permitted: false,
            requires_all: false,
            grouping: Grouping::None,
            limit: None,
            page: None,
            position: None,
            is_continued: false,
            headers: parts.headers.clone(),
            pairs: Vec::new(),
            selector: LabelSelector::everything(),
            selector_text: String::new(),
            token: None,
            revisions: Revisions::Newest,
            version_match: None,
            info,
        };
        let query = Query::parse(at.query().unwrap_or_default());
        let mut seen = std::collections::HashSet::new();
        for (name, value) in query.pairs() {
            if name.starts_with("keelson.io/") && !seen.insert(name.to_owned()) {
                return refused(format!("{name} is given more than once"));
            }
            ask.read(name, value)?;
        }
        ask.limit = query.integer("limit")?.and_then(|limit| usize::try_from(limit).ok()).filter(|limit| *limit > 0);
        ask.check()?;
        Ok(ask)
    }

    fn read(&mut self, name: &str, value: &str) -> Result<(), ApiError> {
        match name {
            SELECTOR if self.marks => {
                self.selector = LabelSelector::parse(value).map_err(ApiError::BadRequest)?;
                value.clone_into(&mut self.selector_text);
            }
            PERMITTED => self.permitted = switch(name, value)?,
            REQUIRE_ALL if self.marks => self.requires_all = switch(name, value)?,
            MATCHES if value == "true" => return refused("keelson.io/matches is for the objects of one cluster"),
            AT if self.marks && value.bytes().all(|byte| byte.is_ascii_digit()) => {
                return refused("keelson.io/at: the clusters have different revisions, so a time is expected");
            }
            PAGE => match value.parse() {
                Ok(page) if page > 0 => self.page = Some(page),
                _ => return refused(format!("keelson.io/page: pages are numbered from 1, not {value:?}")),
            },
            GROUP_BY if self.marks && value.trim_start_matches('.') == format!("metadata.annotations['{CLUSTER}']") => {
                self.grouping = Grouping::Clusters;
            }
            "limit" => {}
            // As upstream, the first value counts.
            "continue" if value.is_empty() || self.token.is_some() => {}
            "continue" => self.token = Some(value.to_owned()),
            "resourceVersionMatch" => self.version_match = Some(value.to_owned()).filter(|rule| !rule.is_empty()),
            "resourceVersion" => {
                let is_number = value.bytes().all(|byte| byte.is_ascii_digit());
                self.revisions = match value {
                    "" => Revisions::Newest,
                    "0" => Revisions::Any,
                    number if is_number && !self.marks => Revisions::Of(number.to_owned()),
                    _ if is_number => {
                        return refused("a resourceVersion is of one cluster: use that of a list over several");
                    }
                    sealed => Revisions::Sealed(sealed.to_owned()),
                };
            }
            _ => {
                if name == GROUP_BY {
                    self.grouping = Grouping::Values;
                }
                self.pairs.push((name.to_owned(), value.to_owned()));
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<(), ApiError> {
        if self.permitted && (self.info.namespace.is_some() || self.info.namespace_is_empty) {
            return refused(format!("{PERMITTED} is for lists over all namespaces"));
        }
        if self.page.is_some() && (self.grouping != Grouping::None || self.token.is_some()) {
            return refused("keelson.io/page can't be combined with keelson.io/groupBy or continue");
        }
        if self.token.is_some() && self.grouping != Grouping::None {
            return refused("keelson.io/groupBy is not allowed when using continue");
        }
        match (self.page, self.limit) {
            (Some(_), None) => return refused("keelson.io/page needs a limit, which says how long a page is"),
            (Some(_), Some(limit)) if limit > MOST_OBJECTS => {
                return refused(format!("a page over several clusters has at most {MOST_OBJECTS} objects"));
            }
            _ => {}
        }
        match (&self.revisions, self.version_match.as_deref()) {
            (Revisions::Sealed(_) | Revisions::Of(_), _) if self.token.is_some() => {
                refused("specifying resource version is not allowed when using continue")
            }
            (Revisions::Sealed(_), Some("Exact")) | (Revisions::Of(_), _) => Ok(()),
            (Revisions::Sealed(_), None) if self.limit.is_some() => Ok(()),
            (Revisions::Sealed(_), _) => {
                refused("the resourceVersion of a list over several clusters needs resourceVersionMatch=Exact")
            }
            (Revisions::Any, None | Some("NotOlderThan")) | (Revisions::Newest, None) => Ok(()),
            (Revisions::Any | Revisions::Newest, Some(rule)) => {
                refused(format!("resourceVersionMatch={rule} needs a resourceVersion"))
            }
        }
    }

    /// The text that a token is bound to: everything that decides the objects and their order.
    pub(super) fn list(&self) -> String {
        let mut pairs: Vec<_> = self.pairs.iter().filter(|(name, _)| !UNBOUND.contains(&&**name)).collect();
        pairs.sort();
        format!("list {:?} {:?} {} {:?} {pairs:?}", self.path, self.selector_text, self.permitted, self.marks)
    }

    /// The text that revisions are bound to.
    pub(super) fn resource(&self) -> String {
        let RequestInfo { group, version, resource, .. } = &self.info;
        format!("revisions {group:?} {version:?} {resource:?}")
    }

    /// The members that are asked, and opens the position that the request names.
    ///
    /// # Errors
    /// 400 if no member is selected, and for a foreign token.
    pub(super) fn choose<'m>(&mut self, members: &'m [Member], seal: &TokenSeal) -> Result<Vec<&'m Member>, ApiError> {
        if let Some(token) = &self.token {
            self.position = Some(Position::open(seal, token, &self.list(), "continue token")?);
            self.is_continued = true;
        } else if let Revisions::Sealed(text) = &self.revisions {
            self.position = Some(Position::open(seal, text, &self.resource(), "resourceVersion")?);
        }
        let is_selected = |member: &&Member| {
            let in_position = |position: &Position| position.revision(&member.name).flatten().is_some();
            self.selector.matches(|label| member.labels.get(label).map(String::as_str))
                && self.position.as_ref().is_none_or(in_position)
        };
        let chosen: Vec<_> = members.iter().filter(is_selected).collect();
        if chosen.is_empty() {
            return refused("no cluster is selected, or those of the continue token are gone");
        }
        Ok(chosen)
    }

    /// The head of a part, for a source and perhaps a namespace.
    pub(super) fn part(&self, cluster: &str, namespace: Option<&str>, at: Option<Revision>) -> Option<Parts> {
        let path = match namespace {
            None => self.path.clone(),
            Some(namespace) => {
                let RequestInfo { group, version, resource, .. } = &self.info;
                let root = if group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", encoded(group)) };
                format!("{root}/{}/namespaces/{}/{}", encoded(version), encoded(namespace), encoded(resource))
            }
        };
        let mut pairs = self.pairs.clone();
        let mut add = |name: &str, value: &str| pairs.push((name.to_owned(), value.to_owned()));
        let at = at.or_else(|| self.position.as_ref()?.revision(cluster)?);
        match (at, &self.revisions) {
            (Some(revision), _) => {
                add("resourceVersion", &revision.to_string());
                add("resourceVersionMatch", "Exact");
            }
            (None, Revisions::Of(number)) => {
                add("resourceVersion", number);
                self.version_match.iter().for_each(|rule| add("resourceVersionMatch", rule));
            }
            (None, Revisions::Any) => add("resourceVersion", "0"),
            (None, Revisions::Newest | Revisions::Sealed(_)) => {}
        }
        let query: Vec<_> = pairs.iter().map(|(name, value)| format!("{}={}", encoded(name), encoded(value))).collect();
        let uri: Uri = format!("{path}?{}", query.join("&")).parse().ok()?;
        let (mut parts, ()) = http::Request::get(uri).body(()).ok()?.into_parts();
        parts.headers = self.headers_for(cluster);
        Some(parts)
    }

    /// True if the parts should wait for the newest state.
    pub(super) fn is_newest(&self) -> bool {
        self.position.is_none() && matches!(self.revisions, Revisions::Newest)
    }

    /// For a request without an exact revision, the least revision of its parts.
    pub(super) fn least_revision(&self) -> Option<Revision> {
        let rule = self.version_match.as_deref();
        match &self.revisions {
            _ if self.position.is_some() => None,
            Revisions::Of(_) if rule == Some("Exact") || (rule.is_none() && self.limit.is_some()) => None,
            Revisions::Of(number) => Some(number.parse().map_or(Revision::ZERO, Revision::new)),
            Revisions::Newest | Revisions::Any | Revisions::Sealed(_) => Some(Revision::ZERO),
        }
    }

    /// The header fields of a part. A source with a token of its own gets no other.
    fn headers_for(&self, cluster: &str) -> HeaderMap {
        // The pipeline of a single source sees the request as it came: a front proxy's fields name the user.
        if !self.marks {
            return self.headers.clone();
        }
        let mut headers = HeaderMap::new();
        for (name, value) in &self.headers {
            if PASSED.contains(name) || name.as_str().starts_with("impersonate-") {
                headers.append(name, value.clone());
            }
        }
        if let Some(token) = self.token_for(cluster) {
            headers.insert(AUTHORIZATION, token);
        }
        headers
    }

    fn token_for(&self, cluster: &str) -> Option<HeaderValue> {
        let of = |name: &str| name.strip_prefix(CLUSTER_TOKEN_PREFIX).is_some_and(|named| named == cluster);
        let own = self.headers.iter().find(|(name, _)| of(name.as_str())).map(|(_, value)| value);
        let mut token = own.or_else(|| self.headers.get(AUTHORIZATION))?.clone();
        token.set_sensitive(true);
        Some(token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(query: &str, headers: &[(&'static str, &'static str)]) -> Result<FleetRequest, String> {
        let uri: Uri = format!("/api/v1/pods?{query}").parse().unwrap();
        let (mut parts, ()) = http::Request::get(uri.clone()).body(()).unwrap().into_parts();
        parts.headers = headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
        FleetRequest::parse(&parts, &uri, true).map_err(|error| error.status().message)
    }

    #[test]
    fn requests_to_sources_have_no_page_or_merged_revision() {
        let whole =
            ask("limit=5&keelson.io%2Fpage=2&labelSelector=a%3Db&keelson.io/sortBy=-x&keelson.io/requireAll=true", &[]);
        let whole = whole.unwrap();
        assert_eq!((whole.limit, whole.page, whole.requires_all), (Some(5), Some(2), true));
        let part = whole.part("a", None, None).unwrap();
        assert_eq!(part.uri, "/api/v1/pods?labelSelector=a%3Db&keelson.io%2FsortBy=-x");
        let part = whole.part("a", Some("n"), Some(Revision::new(7))).unwrap();
        assert_eq!(part.uri.path(), "/api/v1/namespaces/n/pods");
        assert!(part.uri.query().unwrap().ends_with("&resourceVersion=7&resourceVersionMatch=Exact"));
    }

    #[test]
    fn a_source_gets_its_own_token_and_no_other_credential() {
        let headers = [
            ("authorization", "Bearer common"),
            ("keelson-authorization-b", "Bearer own"),
            ("x-remote-user", "root"),
            ("cookie", "c"),
            ("impersonate-user", "ann"),
        ];
        let whole = ask("", &headers).unwrap();
        let of = |cluster: &str| whole.part(cluster, None, None).unwrap().headers;
        assert_eq!(of("a")["authorization"], "Bearer common");
        assert_eq!(of("b")["authorization"], "Bearer own");
        for cluster in ["a", "b"] {
            let mut names: Vec<_> = of(cluster).keys().map(|name| name.as_str().to_owned()).collect();
            names.sort();
            assert_eq!(names, ["authorization", "impersonate-user"]);
        }
        let own_only = ask("", &[("keelson-authorization-b", "Bearer own")]).unwrap();
        assert!(!own_only.part("a", None, None).unwrap().headers.contains_key("authorization"));
    }

    #[test]
    fn parameters_of_a_single_source_are_refused() {
        for query in [
            "resourceVersion=7",
            "keelson.io/at=7",
            "keelson.io/matches=true&keelson.io/search=a",
            "keelson.io/page=1",
            "keelson.io/page=0&limit=1",
            "keelson.io/page=1&limit=5001",
            "keelson.io/page=1&limit=1&continue=x",
            "keelson.io/groupBy=a&continue=x",
            "keelson.io/clusterSelector=a%20b",
            "keelson.io/requireAll=1",
            "keelson.io/requireAll=true&keelson.io/requireAll=true",
            "resourceVersion=abc",
            "resourceVersionMatch=Exact",
            "watch=true",
        ] {
            assert!(ask(query, &[]).is_err(), "{query}");
        }
    }
}
