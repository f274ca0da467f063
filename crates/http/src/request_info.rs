//! The attributes of a request (verb, resource, namespace, name), from its method and path alone.
//!
//! The rules are those of kube-apiserver, since authorization rules depend on them. Below `/api` and `/apis`, the part
//! after the version names a resource, and `namespaces/<name>` before it selects a namespace. A GET without a name is a
//! list or a watch, and a DELETE without a name is a deletecollection. The parser does not know which resources exist.

use std::borrow::Cow;
use std::fmt;

use http::{Method, Uri};
use keelson_meta::field_selector::FieldSelector;
use keelson_resources::Verb;
use percent_encoding::percent_decode_str;
use smallvec::SmallVec;

/// The verb of a request, as authorization rules use it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RequestVerb {
    /// A verb of resources.
    Resource(Verb),
    /// The method in lower case, for requests that are not for a resource, and for unusual methods.
    Other(Cow<'static, str>),
}

impl RequestVerb {
    /// The verb as authorization rules and texts write it.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Resource(verb) => verb.as_str(),
            Self::Other(method) => method,
        }
    }

    /// Returns true for a verb that changes nothing.
    pub fn is_read(&self) -> bool {
        match self {
            Self::Resource(verb) => matches!(verb, Verb::Get | Verb::List | Verb::Watch),
            Self::Other(method) => matches!(&**method, "get" | "head" | "options"),
        }
    }

    /// The verb of a resource. `None` if no resource has such a verb.
    pub fn served(&self) -> Option<Verb> {
        match self {
            Self::Resource(verb) => Some(*verb),
            Self::Other(_) => None,
        }
    }

    fn of_resource(method: &Method) -> Self {
        Self::Resource(match method.as_str() {
            "GET" | "HEAD" => Verb::Get,
            "POST" => Verb::Create,
            "PUT" => Verb::Update,
            "PATCH" => Verb::Patch,
            "DELETE" => Verb::Delete,
            _ => return Self::of_page(method),
        })
    }

    fn of_page(method: &Method) -> Self {
        Self::Other(match method.as_str() {
            "GET" => "get".into(),
            "HEAD" => "head".into(),
            "POST" => "post".into(),
            "PUT" => "put".into(),
            "PATCH" => "patch".into(),
            "DELETE" => "delete".into(),
            "OPTIONS" => "options".into(),
            other => other.to_ascii_lowercase().into(),
        })
    }
}

impl fmt::Display for RequestVerb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The attributes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestInfo {
    /// True if the path names a resource. All fields but `verb` and `path` are empty otherwise.
    pub is_resource_request: bool,
    /// The verb.
    pub verb: RequestVerb,
    /// The group, empty for the core group.
    pub group: String,
    /// The version, such as `v1`.
    pub version: String,
    /// The plural resource name.
    pub resource: String,
    /// The subresource, such as `status`.
    pub subresource: Option<String>,
    /// The namespace of the path. A request for one Namespace object carries its name here too.
    pub namespace: Option<String>,
    /// True if the namespace in the path is an empty segment, as in `/api/v1/namespaces//pods`. Lists then cover all
    /// namespaces.
    pub namespace_is_empty: bool,
    /// The name in the path, or the name that the field selector of a list or watch requires (see `name_in_path`).
    pub name: Option<String>,
    /// True if `name` is in the path.
    pub name_in_path: bool,
    /// The path with its percent escapes decoded.
    pub path: String,
    /// True for the deprecated form `/api/v1/watch/...`.
    pub watch_path: bool,
    /// The path after the subresource, for proxies.
    pub rest: Vec<String>,
    /// True if a program behind this server answers with a stream that has no end of its own, and for a profile.
    pub is_session: bool,
}

/// Subresources whose responses may be streams without an end, whatever the verb.
const SESSIONS: [&str; 5] = ["attach", "exec", "log", "portforward", "proxy"];

/// The number of path segments of an object's subresource, the most without the rest of a proxy's path.
const USUAL_PARTS: usize = 8;

/// Subresources of a namespace, which are not resources within it.
const NAMESPACE_SUBRESOURCES: [&str; 2] = ["status", "finalize"];

impl RequestInfo {
    /// Parses a request's method and target.
    pub fn parse(method: &Method, uri: &Uri) -> Self {
        let path = percent_decode_str(uri.path()).decode_utf8_lossy().into_owned();
        let mut info = Self::non_resource(method);
        let parts = parts(&path);
        // A storage key must never contain an empty or relative segment. No resource path begins with two slashes.
        if !path.starts_with("//") && names_something(&parts) {
            info.read_path(method, &parts, uri.query().unwrap_or_default());
        }
        // Pods, services and nodes are in the core group. Sessions of other groups belong to other servers.
        info.is_session = info.group.is_empty() && info.is_session_by_name();
        drop(parts);
        // As upstream, the client decides how long a profile takes.
        info.is_session |= path.starts_with("/debug/pprof/");
        Self { path, ..info }
    }

    /// As [`parse`](Self::parse), for a request that another server answers. That server gets the path unchanged. Every
    /// path is therefore authorized as a resource path, even with empty and relative segments.
    pub fn parse_elsewhere(method: &Method, uri: &Uri) -> Self {
        let path = percent_decode_str(uri.path()).decode_utf8_lossy().into_owned();
        let mut info = Self::non_resource(method);
        info.read_path(method, &parts(&path), uri.query().unwrap_or_default());
        let is_session = info.is_session_by_name();
        Self { path, is_session, ..info }
    }

    /// Parses the path of a resource. Changes nothing if the path names no resource.
    fn read_path(&mut self, method: &Method, parts: &[&str], query: &str) {
        let (group, parts) = match parts {
            ["api", parts @ ..] if parts.len() >= 2 => ("", parts),
            ["apis", group, parts @ ..] if parts.len() >= 2 => (*group, parts),
            _ => return,
        };
        let (version, mut parts) = (parts[0], &parts[1..]);
        let mut verb = RequestVerb::of_resource(method);
        if let ["watch", rest @ ..] = parts {
            if rest.is_empty() {
                return;
            }
            self.watch_path = true;
            verb = if verb == RequestVerb::Resource(Verb::Get) { RequestVerb::Resource(Verb::Watch) } else { verb };
            parts = rest;
        }
        self.is_resource_request = true;
        self.group = group.to_owned();
        self.version = version.to_owned();
        self.verb = verb;
        self.read_resource(parts);
        self.settle_verb(query);
    }

    /// Returns true if the response is an endless stream.
    pub fn is_long_running(&self) -> bool {
        self.verb == RequestVerb::Resource(Verb::Watch) || self.is_session
    }

    /// Returns true for an endless stream, or for a response that this server may not end. Audit treats these
    /// separately.
    pub(crate) fn has_no_end(&self) -> bool {
        self.is_long_running() || self.is_session_by_name()
    }

    fn is_session_by_name(&self) -> bool {
        self.subresource.as_deref().is_some_and(|name| SESSIONS.contains(&name))
    }

    /// Returns true if flow control applies: as upstream, to all requests except those whose duration the client
    /// decides. A watch counts until it has sent its initial events.
    pub(crate) fn waits_its_turn(&self) -> bool {
        self.verb == RequestVerb::Resource(Verb::Watch) || !self.has_no_end()
    }

    fn non_resource(method: &Method) -> Self {
        Self {
            is_resource_request: false,
            verb: RequestVerb::of_page(method),
            group: String::new(),
            version: String::new(),
            resource: String::new(),
            subresource: None,
            namespace: None,
            namespace_is_empty: false,
            name: None,
            name_in_path: false,
            path: String::new(),
            watch_path: false,
            rest: Vec::new(),
            is_session: false,
        }
    }

    /// `[namespaces/<namespace>/]<resource>[/<name>[/<subresource>[/...]]]`
    fn read_resource(&mut self, parts: &[&str]) {
        let parts = match parts {
            ["namespaces", namespace, parts @ ..] => {
                match *namespace {
                    "" => self.namespace_is_empty = true,
                    namespace => self.namespace = Some(namespace.to_owned()),
                }
                match parts {
                    [] => &["namespaces", namespace],
                    [subresource, ..] if NAMESPACE_SUBRESOURCES.contains(subresource) => {
                        self.resource = "namespaces".to_owned();
                        self.read_name(&[&[*namespace], parts].concat());
                        return;
                    }
                    _ => parts,
                }
            }
            _ => parts,
        };
        if let [resource, parts @ ..] = parts {
            self.resource = (*resource).to_owned();
            self.read_name(parts);
        }
    }

    fn read_name(&mut self, parts: &[&str]) {
        if let [name, parts @ ..] = parts {
            self.name = Some((*name).to_owned());
            self.name_in_path = true;
            self.subresource = parts.first().map(|part| (*part).to_owned());
            self.rest = parts.iter().skip(1).map(|part| (*part).to_owned()).collect();
        }
    }

    /// Changes the verb for a path without a name, which is a collection.
    fn settle_verb(&mut self, query: &str) {
        if self.name.is_some() {
            return;
        }
        match self.verb {
            RequestVerb::Resource(Verb::Get) => {
                let verb = if wants_watch(query) { Verb::Watch } else { Verb::List };
                self.verb = RequestVerb::Resource(verb);
            }
            RequestVerb::Resource(Verb::Delete) => self.verb = RequestVerb::Resource(Verb::DeleteCollection),
            _ => {}
        }
        if matches!(self.verb, RequestVerb::Resource(Verb::List | Verb::Watch)) {
            self.name = selected_name(query);
        }
    }
}

/// Returns true if no segment is empty or relative, except the namespace of a resource.
fn names_something(parts: &[&str]) -> bool {
    parts.iter().enumerate().all(|(at, part)| match *part {
        "." | ".." => false,
        "" => is_empty_namespace(&parts[..at], &parts[at + 1..]),
        _ => true,
    })
}

/// Returns true if the empty segment between these is the namespace of a resource.
fn is_empty_namespace(before: &[&str], behind: &[&str]) -> bool {
    let within = matches!(
        before,
        ["api", _, "namespaces"]
            | ["api", _, "watch", "namespaces"]
            | ["apis", _, _, "namespaces"]
            | ["apis", _, _, "watch", "namespaces"]
    );
    within && behind.first().is_some_and(|resource| !NAMESPACE_SUBRESOURCES.contains(resource))
}

/// The segments of a path.
fn parts(path: &str) -> SmallVec<[&str; USUAL_PARTS]> {
    path.trim_matches('/').split('/').collect()
}

/// Returns true if the query requests a watch: as upstream, by any value but `0` and `false`.
fn wants_watch(query: &str) -> bool {
    form_urlencoded::parse(query.as_bytes())
        .find(|(key, _)| key == "watch")
        .is_some_and(|(_, value)| value != "0" && !value.eq_ignore_ascii_case("false"))
}

/// The name that a field selector requires, if a path can contain it. The list handler uses the same parser, since an
/// authorization for a name must cover exactly the objects listed.
fn selected_name(query: &str) -> Option<String> {
    let (_, selector) = form_urlencoded::parse(query.as_bytes()).find(|(key, _)| key == "fieldSelector")?;
    let selector = FieldSelector::parse(&selector).ok()?;
    let name = selector.require_exact("metadata.name")?;
    let valid = !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '%']);
    valid.then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expects `verb group/version resource/subresource namespace/name`, with `-` for absent parts and `~` before a
    /// selected name.
    fn check(method: &str, target: &str, expect: &str) {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let info = RequestInfo::parse(&method, &target.parse().unwrap());
        let text = if info.is_resource_request {
            let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
            format!(
                "{} {}/{} {}/{} {}/{}{}{}{}",
                info.verb,
                info.group,
                info.version,
                info.resource,
                or_dash(&info.subresource),
                or_dash(&info.namespace),
                if info.name.is_some() && !info.name_in_path { "~" } else { "" },
                or_dash(&info.name),
                if info.watch_path { " watch-path" } else { "" },
                if info.rest.is_empty() { String::new() } else { format!(" rest={}", info.rest.join("/")) },
            )
        } else {
            format!("{} {}", info.verb, info.path)
        };
        assert_eq!(text, expect, "{method} {target}");
    }

    #[test]
    fn resource_paths() {
        check("GET", "/api/v1/pods", "list /v1 pods/- -/-");
        check("GET", "/api/v1/namespaces/a/pods", "list /v1 pods/- a/-");
        check("GET", "/api/v1/namespaces/a/pods/p", "get /v1 pods/- a/p");
        check("GET", "/api/v1/namespaces/a/pods/p?watch=1", "get /v1 pods/- a/p");
        check("GET", "/api/v1/namespaces/a/pods/p/status", "get /v1 pods/status a/p");
        check("GET", "/apis/apps/v1/namespaces/a/deployments/d/scale", "get apps/v1 deployments/scale a/d");
        check("POST", "/apis/apps/v1/namespaces/a/deployments", "create apps/v1 deployments/- a/-");
        check("PUT", "/api/v1/nodes/n", "update /v1 nodes/- -/n");
        check("PATCH", "/api/v1/nodes/n/status", "patch /v1 nodes/status -/n");
        check("DELETE", "/api/v1/namespaces/a/pods/p", "delete /v1 pods/- a/p");
        check("DELETE", "/api/v1/namespaces/a/pods", "deletecollection /v1 pods/- a/-");
        check("HEAD", "/api/v1/nodes/n", "get /v1 nodes/- -/n");
        check("OPTIONS", "/api/v1/nodes/n", "options /v1 nodes/- -/n");
        check("GET", "/api/v1/namespaces/a/services/s/proxy/x/y", "get /v1 services/proxy a/s rest=x/y");
        check("GET", "/api/v1/pods/", "list /v1 pods/- -/-");
    }

    #[test]
    fn namespaces_are_objects_and_scopes() {
        check("GET", "/api/v1/namespaces", "list /v1 namespaces/- -/-");
        check("GET", "/api/v1/namespaces/a", "get /v1 namespaces/- a/a");
        check("PUT", "/api/v1/namespaces/a/finalize", "update /v1 namespaces/finalize a/a");
        check("GET", "/api/v1/namespaces/a/status", "get /v1 namespaces/status a/a");
    }

    #[test]
    fn an_empty_namespace_is_no_namespace() {
        check("GET", "/api/v1/namespaces//pods", "list /v1 pods/- -/-");
        check("GET", "/api/v1/namespaces//pods?watch=1", "watch /v1 pods/- -/-");
        check("GET", "/api/v1/watch/namespaces//pods", "watch /v1 pods/- -/- watch-path");
        check("DELETE", "/apis/apps/v1/namespaces//deployments/", "deletecollection apps/v1 deployments/- -/-");
        check("GET", "/api/v1/namespaces//pods/p", "get /v1 pods/- -/p");
        check("GET", "/api/v1/namespaces//", "list /v1 namespaces/- -/-");
        for other in [
            "//api/v1/pods",
            "/api//v1/pods",
            "/api/v1//pods",
            "/api/v1/namespaces//status",
            "/api/v1/namespaces/a//pods",
            "/api/v1/namespaces//pods//status",
            "/apis/apps//v1/namespaces//deployments",
        ] {
            check("GET", other, &format!("get {other}"));
        }
    }

    #[test]
    fn watches() {
        check("GET", "/api/v1/pods?watch=1", "watch /v1 pods/- -/-");
        check("GET", "/api/v1/pods?watch=true", "watch /v1 pods/- -/-");
        check("GET", "/api/v1/pods?watch", "watch /v1 pods/- -/-");
        check("GET", "/api/v1/pods?watch=False", "list /v1 pods/- -/-");
        check("GET", "/api/v1/pods?watch=0", "list /v1 pods/- -/-");
        check("GET", "/api/v1/watch/pods", "watch /v1 pods/- -/- watch-path");
        check("GET", "/api/v1/watch/namespaces/a/pods/p", "watch /v1 pods/- a/p watch-path");
        check("GET", "/apis/apps/v1/watch/deployments", "watch apps/v1 deployments/- -/- watch-path");
        check("GET", "/api/v1/watch", "get /api/v1/watch");
    }

    #[test]
    fn a_selected_name_is_known_to_authorization() {
        check("GET", "/api/v1/pods?fieldSelector=metadata.name%3Dp", "list /v1 pods/- -/~p");
        check("GET", "/api/v1/pods?fieldSelector=a%3Db,metadata.name%3D%3Dp&watch=1", "watch /v1 pods/- -/~p");
        check("GET", "/api/v1/pods?fieldSelector=metadata.name!%3Dp", "list /v1 pods/- -/-");
        check("GET", "/api/v1/pods?fieldSelector=metadata.name%3D..", "list /v1 pods/- -/-");
        // The backslash escapes the comma, so `metadata.name=p` is part of a value.
        check("GET", r"/api/v1/pods?fieldSelector=a%3Db%5C%2Cmetadata.name%3Dp", "list /v1 pods/- -/-");
        check("GET", r"/api/v1/pods?fieldSelector=metadata.name%3Da%5C%2Cb", "list /v1 pods/- -/~a,b");
        check("GET", "/api/v1/pods?fieldSelector=metadata.name%3Dp,!", "list /v1 pods/- -/-");
    }

    #[test]
    fn other_paths() {
        check("GET", "/", "get /");
        check("GET", "/api", "get /api");
        check("GET", "/api/v1", "get /api/v1");
        check("GET", "/apis/apps/v1", "get /apis/apps/v1");
        check("GET", "/readyz/ping", "get /readyz/ping");
        check("POST", "/version", "post /version");
        check("GET", "/openapi/v3/apis/apps/v1", "get /openapi/v3/apis/apps/v1");
    }

    #[test]
    fn requests_to_other_servers_are_authorized_as_resources() {
        let of = |path: &str| RequestInfo::parse_elsewhere(&Method::GET, &path.parse().unwrap());
        let odd = of("/apis/g/v1/namespaces//x/things");
        assert_eq!((odd.is_resource_request, odd.verb.as_str(), &*odd.resource), (true, "get", "x"));
        assert_eq!(odd.name.as_deref(), Some("things"));
        assert_eq!(of("/apis/g/v1/things/../things").subresource.as_deref(), Some("things"));
        assert!(!of("/apis/g/v1").is_resource_request && !of("/apis/g/v1/").is_resource_request);
        assert!(of("/apis/g/v1/namespaces/x/things/a/log").is_long_running());
        assert!(!of("/apis/g/v1/namespaces/x/things/a/status").is_long_running());
    }

    #[test]
    fn escapes_are_decoded_and_paths_cannot_climb() {
        check(
            "GET",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Aa",
            "get rbac.authorization.k8s.io/v1 clusterroles/- -/system:a",
        );
        check("GET", "/api/v1/namespaces/a%2Fpods", "list /v1 pods/- a/-");
        check("GET", "/api/v1/namespaces/%2E%2E/pods/p", "get /api/v1/namespaces/../pods/p");
    }
}
