//! How many requests are answered at once, and the mark that tells clients so.
//!
//! A request beyond the bound is refused at once with 429 and told when to come back: work that was begun can then be
//! finished. Watches are not counted: they cost no worker while they wait. Clients that look for the mark of flow control
//! on this side (`X-Kubernetes-PF-FlowSchema-UID`) then do not throttle themselves.

use std::sync::Arc;

use http::Response;
use http::header::{HeaderName, HeaderValue};
use keelson_meta::ApiError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::body::ResponseBody;
use crate::request_info::RequestInfo;

/// How many reads are answered at once. Each holds a few frames of 64 KiB.
const READS_IN_FLIGHT: usize = 2000;
/// How many writes are answered at once. Each may hold a body of 3 MiB.
const WRITES_IN_FLIGHT: usize = 500;
/// When a refused client may try again.
const RETRY_AFTER_SECONDS: u32 = 1;

const FLOW_SCHEMA: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
const PRIORITY_LEVEL: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");
/// There is one flow and one level, so their ids never change.
const FLOW_SCHEMA_UID: HeaderValue = HeaderValue::from_static("6b65656c-736f-4e00-8000-00666c6f7700");
const PRIORITY_LEVEL_UID: HeaderValue = HeaderValue::from_static("6b65656c-736f-4e00-8000-006c6576656c");

/// The bounds of one server.
#[derive(Debug)]
pub(super) struct FlowControl {
    reads: Arc<Semaphore>,
    writes: Arc<Semaphore>,
}

impl FlowControl {
    pub(super) fn new() -> Self {
        Self { reads: Arc::new(Semaphore::new(READS_IN_FLIGHT)), writes: Arc::new(Semaphore::new(WRITES_IN_FLIGHT)) }
    }

    /// A place for the request, to be kept until its answer is sent; `None` for what needs none.
    ///
    /// # Errors
    /// [`ApiError::TooManyRequests`] when all places are taken.
    pub(super) fn admit(&self, info: &RequestInfo) -> Result<Option<OwnedSemaphorePermit>, ApiError> {
        // Health must be told above all when the server is busy.
        if info.is_long_running() || !info.is_resource_request {
            return Ok(None);
        }
        let places = if info.verb.is_read() { &self.reads } else { &self.writes };
        let place = places.clone().try_acquire_owned();
        place.map(Some).map_err(|_| ApiError::TooManyRequests { retry_after_seconds: RETRY_AFTER_SECONDS })
    }
}

/// The answer with the mark of flow control.
pub(super) fn marked(mut response: Response<ResponseBody>) -> Response<ResponseBody> {
    response.headers_mut().insert(FLOW_SCHEMA, FLOW_SCHEMA_UID);
    response.headers_mut().insert(PRIORITY_LEVEL, PRIORITY_LEVEL_UID);
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Method;

    fn request(method: &Method, target: &str) -> RequestInfo {
        RequestInfo::parse(method, &target.parse().unwrap())
    }

    #[test]
    fn a_request_beyond_the_bound_is_refused_until_another_has_ended() {
        let control = FlowControl { reads: Arc::new(Semaphore::new(1)), writes: Arc::new(Semaphore::new(1)) };
        let list = request(&Method::GET, "/api/v1/pods");
        let first = control.admit(&list).unwrap();
        assert_eq!(control.admit(&list).unwrap_err().code(), 429);
        assert!(control.admit(&request(&Method::POST, "/api/v1/namespaces/a/pods")).unwrap().is_some());
        assert!(control.admit(&request(&Method::GET, "/api/v1/pods?watch=1")).unwrap().is_none());
        assert!(control.admit(&request(&Method::GET, "/livez")).unwrap().is_none());
        drop(first);
        assert!(control.admit(&list).is_ok());
    }
}
