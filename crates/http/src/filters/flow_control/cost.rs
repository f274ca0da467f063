//! The cost of a request: its number of seats, and whether it is long work.
//!
//! The cost is an estimate, made before the request reads any object. It uses the numbers of objects and bytes in the
//! cache's counted trees.

use http::Method;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::request::Parts;
use keelson_registry::Estimate;
use keelson_resources::Verb;

use crate::body::RequestBody;
use crate::negotiation::wants_pretty;
use crate::request_info::{RequestInfo, RequestVerb};
use crate::search;

/// The number of response bytes of one seat: about two chunks of 500 pods.
const SEAT_BYTES: u64 = 4 * 1024 * 1024;
/// The number of scanned objects of one seat.
const SEAT_ROWS: u64 = 5_000;

/// Bodies of more bytes are long work: reading, validating and encoding take about a millisecond for each 50 KiB.
const LONG_BODY_BYTES: usize = 64 * 1024;
/// Reading or changing an object of more bytes is long work.
const LONG_OBJECT_BYTES: u64 = 128 * 1024;
/// Encoding an object of more bytes as YAML, protobuf or a table row is long work.
const LONG_MADE_BYTES: u64 = 32 * 1024;
/// Scanning more objects one by one is long work.
const LONG_ROWS: u64 = 5_000;
/// Deleting more objects in one request is long work, since several are deleted concurrently.
const LONG_DELETED_ROWS: u64 = 32;
/// Queries of more bytes, such as selectors with many terms, are long work.
const LONG_QUERY_BYTES: usize = 4 * 1024;

/// The limit for merging a body into an object, as the product of their sizes in bytes. A patch that walks a long list
/// repeatedly takes time in proportion to that product.
const LONG_PRODUCT: u64 = 256 << 20;
/// The limit for validating an object by its schema: its bytes times the number of times that each may be read.
const LONG_VALIDATION: u64 = 1 << 20;
/// The only patches whose result may be much larger than the patch: those that copy existing values. The operation may
/// be written plainly or with escapes.
const COPYING: (&str, [&[u8]; 2]) = ("application/json-patch+json", [b"copy", b"\\u"]);
/// Pages that are rendered on request, from all metrics, all served resources, or all requests of flow control.
const LONG_PAGES: [&str; 4] = ["/openapi/", "/metrics", super::dumps::PATH, search::PATH];

/// The body of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestBodySize {
    /// The size of the body in bytes, or the minimum if the exact size is not known.
    pub(crate) bytes: u64,
    /// True if it is larger than [`LONG_BODY_BYTES`], or may produce an object larger than itself.
    pub(crate) much: bool,
}

impl RequestBodySize {
    /// Measures a body. Reads only as many bytes as the decision needs.
    pub(crate) async fn measure(parts: &Parts, body: &mut RequestBody) -> Self {
        if body.is_empty() {
            return Self::default();
        }
        let is_long = body.has_more_than(LONG_BODY_BYTES).await;
        let media = parts.headers.get(CONTENT_TYPE).and_then(|media| media.to_str().ok()).unwrap_or_default();
        let may_copy = parts.method == Method::PATCH && media.starts_with(COPYING.0);
        let much = is_long || (may_copy && body.holds_one_of(&COPYING.1).await);
        Self { bytes: body.known_bytes(), much }
    }
}

/// The cost of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cost {
    /// The number of seats that it takes.
    pub(crate) seats: usize,
    /// True if it may block a thread for longer than a short request.
    pub(crate) is_long: bool,
}

impl Default for Cost {
    fn default() -> Self {
        Self { seats: 1, is_long: false }
    }
}

/// The cost of a request, from the cache's estimate of its objects.
pub(crate) fn request_cost(info: &RequestInfo, parts: &Parts, about: &Estimate, sent: RequestBodySize) -> Cost {
    let is_watch = info.verb == RequestVerb::Resource(Verb::Watch);
    let least = if info.path == search::PATH { search::SEATS } else { 1 };
    let seats = least + about.bytes / SEAT_BYTES + about.looked_at / SEAT_ROWS;
    let is_list = matches!(info.verb, RequestVerb::Resource(Verb::List | Verb::DeleteCollection | Verb::Watch));
    let longest = if is_made(parts) { LONG_MADE_BYTES } else { LONG_OBJECT_BYTES };
    let validation_work = (sent.bytes + about.bytes).saturating_mul(about.effort);
    let is_long = sent.much
        || about.effort == u64::MAX
        || validation_work > LONG_VALIDATION
        || has_long_query(parts)
        || (is_list && !is_watch && about.looked_at > LONG_ROWS && (about.is_selected || is_made(parts)))
        || (info.verb == RequestVerb::Resource(Verb::DeleteCollection)
            && (about.looked_at > LONG_DELETED_ROWS || about.bytes > LONG_OBJECT_BYTES))
        || (!is_list && (about.bytes > longest || about.bytes * sent.bytes > LONG_PRODUCT))
        || (!info.is_resource_request && LONG_PAGES.iter().any(|page| info.path.starts_with(page)));
    Cost { seats: usize::try_from(seats).unwrap_or(usize::MAX), is_long }
}

/// Returns true if parsing the query, or selecting by it, is long work.
pub(crate) fn has_long_query(parts: &Parts) -> bool {
    parts.uri.query().is_some_and(|query| query.len() > LONG_QUERY_BYTES)
}

/// Returns true if a response with one object copies its stored bytes.
pub(crate) fn is_copied(parts: &Parts) -> bool {
    !is_made(parts) && !wants_pretty(parts)
}

/// Returns true if the response is encoded from objects rather than copied: a table, metadata, indented JSON, YAML,
/// protobuf.
fn is_made(parts: &Parts) -> bool {
    parts
        .headers
        .get_all(ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .any(|accept| ["as=", "protobuf", "yaml", "pretty"].iter().any(|word| accept.contains(word)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn of_list(bytes: u64, looked_at: u64) -> Estimate {
        Estimate { bytes, looked_at, ..Estimate::default() }
    }

    fn check(target: &str, accept: &str, about: Estimate, much: bool, seats: usize, is_long: bool) {
        let parts = Request::get(target).header(ACCEPT, accept).body(()).unwrap().into_parts().0;
        let info = RequestInfo::parse(&Method::GET, &parts.uri);
        let cost = request_cost(&info, &parts, &about, RequestBodySize { much, ..RequestBodySize::default() });
        assert_eq!(cost, Cost { seats, is_long }, "{target} {accept}");
    }

    #[test]
    fn a_whole_list_costs_more_than_a_chunk() {
        let (chunk, whole) = (of_list(2 << 20, 500), of_list(500 << 20, 100_000));
        check("/api/v1/pods?limit=500", "*/*", chunk, false, 1, false);
        check("/api/v1/pods", "*/*", whole, false, 146, false);
        check("/api/v1/pods", "application/json;as=Table;g=meta.k8s.io;v=v1", whole, false, 146, true);
        check("/api/v1/pods?labelSelector=a", "*/*", Estimate { is_selected: true, ..whole }, false, 146, true);
    }

    #[test]
    fn large_bodies_large_objects_and_long_queries_are_long_work() {
        let small = Estimate { bytes: 3_000, ..Estimate::default() };
        let large = Estimate { bytes: 1 << 20, ..Estimate::default() };
        check("/api/v1/namespaces/a/pods/p", "*/*", small, false, 1, false);
        check("/api/v1/namespaces/a/pods/p", "*/*", small, true, 1, true);
        let middling = Estimate { bytes: 50_000, ..Estimate::default() };
        check("/api/v1/namespaces/a/pods/p", "*/*", middling, false, 1, false);
        check("/api/v1/namespaces/a/pods/p", "application/yaml", middling, false, 1, true);
        check("/api/v1/namespaces/a/pods/p", "*/*", large, false, 1, true);
        let long = format!("/api/v1/pods?labelSelector=a+in+({})", "b,".repeat(9_909));
        check(&long, "*/*", of_list(2 << 20, 500), false, 1, true);
        check("/openapi/v2", "*/*", Estimate::default(), false, 1, true);
        check("/debug/api_priority_and_fairness/dump_requests", "*/*", Estimate::default(), false, 1, true);
        check("/apis", "*/*", Estimate::default(), false, 1, false);
        check("/apis/apps/v1/namespaces/a/deployments/d", "*/*", small, false, 1, false);
    }

    #[test]
    fn to_delete_many_objects_is_long_work() {
        let (parts, ()) = Request::delete("/api/v1/namespaces/a/pods").body(()).unwrap().into_parts();
        let info = RequestInfo::parse(&parts.method, &parts.uri);
        let is_long = |looked_at, bytes| {
            let about = Estimate { bytes, looked_at, ..Estimate::default() };
            request_cost(&info, &parts, &about, RequestBodySize::default()).is_long
        };
        assert!(!is_long(20, 60_000));
        assert!(is_long(20, 1 << 20));
        assert!(is_long(100, 60_000));
    }

    #[test]
    fn expensive_validation_counts_as_long_work() {
        let check = |effort: u64, sent: u64, stored: u64, expected: bool| {
            let parts = Request::patch("/apis/e.com/v1/namespaces/a/hosts/h").body(()).unwrap().into_parts().0;
            let info = RequestInfo::parse(&parts.method, &parts.uri);
            let about = Estimate { bytes: stored, looked_at: 1, effort, ..Estimate::default() };
            let is_long = request_cost(&info, &parts, &about, RequestBodySize { bytes: sent, much: false }).is_long;
            assert_eq!(is_long, expected, "{effort} times {sent} and {stored}");
        };
        check(1, 2_000, 100_000, false);
        check(4, 5_000, 5_000, false);
        check(40, 60_000, 0, true);
        check(40, 1_000, 60_000, true);
        check(u64::MAX, 0, 0, true);
        check(u64::MAX, 1_000, 1_000, true);
    }

    #[tokio::test]
    async fn small_patches_that_may_make_much_are_long_work() {
        let about = |bytes| Estimate { bytes, ..Estimate::default() };
        let check = async |form: &str, body: String, bytes: u64, expect: bool| {
            let request = Request::patch("/api/v1/namespaces/a/pods/p").header(CONTENT_TYPE, form);
            let parts = request.body(()).unwrap().into_parts().0;
            let info = RequestInfo::parse(&parts.method, &parts.uri);
            let mut sent = RequestBody::from_bytes(body.clone());
            let cost = request_cost(&info, &parts, &about(bytes), RequestBodySize::measure(&parts, &mut sent).await);
            assert_eq!(cost.is_long, expect, "{form} {} {bytes}", &body[..body.len().min(80)]);
            assert_eq!(sent.read(LONG_BODY_BYTES).await.unwrap(), body);
        };
        let (json, merge) = ("application/json-patch+json", "application/merge-patch+json");
        let copy = r#"[{"op":"copy","from":"/data","path":"/data/a"}]"#.to_owned();
        check(json, copy.clone(), 3_000, true).await;
        check(json, copy.replace("copy", r"cop\u0079"), 3_000, true).await;
        check(json, copy.replace("copy", "move"), 3_000, false).await;
        check(merge, r#"{"data":{"a":"copy"}}"#.to_owned(), 3_000, false).await;
        let long = format!("{{\"data\":\"{}\"}}", "x".repeat(20_000));
        check(merge, long.clone(), 10_000, false).await;
        check(merge, long, 20_000, true).await;
    }
}
