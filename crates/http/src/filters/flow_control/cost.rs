//! What a request will cost: how many places it takes, and whether it is long work.

use http::header::ACCEPT;
use http::request::Parts;
use keelson_registry::Estimate;

use crate::request_info::RequestInfo;

/// How many bytes of an answer one place stands for: about two chunks of 500 pods.
const PLACE_BYTES: u64 = 4 * 1024 * 1024;
/// How many objects one place stands for, of those that are looked at.
const PLACE_ROWS: u64 = 5_000;

/// Bodies of more bytes are long work: to read, check and encode takes about a millisecond for each 50 KiB.
pub(crate) const LONG_BODY_BYTES: usize = 64 * 1024;
/// To show or change an object of more bytes is.
const LONG_OBJECT_BYTES: u64 = 128 * 1024;
/// To look at more objects one by one is.
const LONG_ROWS: u64 = 5_000;
/// What a query of more bytes asks for is: selectors of many terms.
const LONG_QUERY_BYTES: usize = 4 * 1024;

/// What a request sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sent {
    /// Whether its body has more than [`LONG_BODY_BYTES`].
    pub(crate) much: bool,
}

/// What a request will cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cost {
    /// How many places it takes.
    pub(crate) places: usize,
    /// Whether it may hold a thread for longer than requests may.
    pub(crate) is_long: bool,
}

impl Default for Cost {
    fn default() -> Self {
        Self { places: 1, is_long: false }
    }
}

/// The cost of a request, by what the trees of the cache know of what it is about.
pub(crate) fn of(info: &RequestInfo, parts: &Parts, about: &Estimate, sent: Sent) -> Cost {
    let places = 1 + about.bytes / PLACE_BYTES + about.looked_at / PLACE_ROWS;
    let is_list = info.name.is_none() || !info.name_in_path;
    let is_long = sent.much
        || parts.uri.query().is_some_and(|query| query.len() > LONG_QUERY_BYTES)
        || (is_list && about.looked_at > LONG_ROWS && (about.is_selected || is_made(parts)))
        || (!is_list && about.bytes > LONG_OBJECT_BYTES)
        // These are rendered when they are first asked for.
        || info.path.starts_with("/openapi/");
    Cost { places: usize::try_from(places).unwrap_or(usize::MAX), is_long }
}

/// Whether the answer is made from objects rather than copied: a table, bare metadata, YAML, protobuf.
fn is_made(parts: &Parts) -> bool {
    parts
        .headers
        .get_all(ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .any(|accept| ["as=", "protobuf", "yaml"].iter().any(|word| accept.contains(word)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{Method, Request};

    const CHUNK: Estimate = Estimate { bytes: 2 << 20, looked_at: 500, is_selected: false };
    const WHOLE: Estimate = Estimate { bytes: 500 << 20, looked_at: 100_000, is_selected: false };

    fn check(target: &str, accept: &str, about: Estimate, much: bool, places: usize, is_long: bool) {
        let parts = Request::get(target).header(ACCEPT, accept).body(()).unwrap().into_parts().0;
        let info = RequestInfo::parse(&Method::GET, &parts.uri);
        let cost = of(&info, &parts, &about, Sent { much });
        assert_eq!(cost, Cost { places, is_long }, "{target} {accept}");
    }

    #[test]
    fn a_whole_list_costs_more_than_a_chunk() {
        check("/api/v1/pods?limit=500", "*/*", CHUNK, false, 1, false);
        check("/api/v1/pods", "*/*", WHOLE, false, 146, false);
        check("/api/v1/pods", "application/json;as=Table;g=meta.k8s.io;v=v1", WHOLE, false, 146, true);
        check("/api/v1/pods?labelSelector=a", "*/*", Estimate { is_selected: true, ..WHOLE }, false, 146, true);
    }

    #[test]
    fn large_bodies_large_objects_and_long_queries_are_long_work() {
        let small = Estimate { bytes: 3_000, ..Estimate::default() };
        let large = Estimate { bytes: 1 << 20, ..Estimate::default() };
        check("/api/v1/namespaces/a/pods/p", "*/*", small, false, 1, false);
        check("/api/v1/namespaces/a/pods/p", "*/*", small, true, 1, true);
        check("/api/v1/namespaces/a/pods/p", "*/*", large, false, 1, true);
        let long = format!("/api/v1/pods?labelSelector=a+in+({})", "b,".repeat(9_909));
        check(&long, "*/*", CHUNK, false, 1, true);
        check("/openapi/v2", "*/*", Estimate::default(), false, 1, true);
    }
}
