//! Requests that are proxied to a pod, an endpoint of a service or a node.
//!
//! The path after `proxy` and the query are forwarded unchanged. The server never follows a redirect. As upstream, it
//! rewrites a redirect to the same host to the path of the proxy, and links of HTML pages (`html.rs`). Response headers
//! are filtered as those of aggregated servers (`crate::proxy`).

use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

use bytes::Bytes;

use http::header::{
    ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, LOCATION,
};
use http::{Method, Response, StatusCode, Uri};
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame};
use keelson_meta::{ApiError, host_port};
use keelson_outbound::{ForwardedBody, NodeAddress, NodeError, Security, clean_path};
use keelson_registry::ProxiedEndpoint;
use tokio::time::timeout;

use super::html::LinkRewriter;
use super::sessions::UPGRADE_TIME;
use super::{NodeAccess, refused_or, unwritable};
use crate::body::{BodyError, ResponseBody, empty, stream};
use crate::proxy::{FORWARDED_URI, HeldValue, begun_tunnel, escaped_path, keep_upgrade, pass, wanted_upgrade};
use crate::service::ApiRequest;

impl NodeAccess {
    /// Proxies a request to an endpoint.
    pub(super) async fn proxied(
        &self,
        endpoint: &ProxiedEndpoint,
        request: ApiRequest,
    ) -> Result<Response<ResponseBody>, ApiError> {
        let ApiRequest { info, mut parts, body, stopping, .. } = request;
        let security = match (endpoint.is_tls, endpoint.is_kubelet) {
            (_, true) => Security::Kubelet,
            (true, false) => Security::Unverified,
            (false, false) => Security::Plain,
        };
        let address = NodeAddress { host: endpoint.host.clone(), port: endpoint.port, security, is_confined: true };
        let upgrade = wanted_upgrade(&mut parts);
        let path = path_of(&info.rest, info.path.ends_with('/'));
        if path.is_empty() && upgrade.is_none() && matches!(parts.method, Method::GET | Method::HEAD) {
            return redirected(&parts.uri);
        }
        let path = if path.is_empty() { "/".to_owned() } else { path };
        let query = parts.uri.query().map_or_else(String::new, |query| format!("?{query}"));
        let target = format!("{}{query}", escaped_path(&path));
        let prefix = info.path.trim_end_matches('/').strip_suffix(path.trim_end_matches('/'));
        let prefix = prefix.unwrap_or(&info.path).trim_end_matches('/').to_owned();
        let mut head = self.head(&parts, parts.method.clone(), &address, &target).ok_or_else(unwritable)?;
        self.counts.proxied.fetch_add(1, Ordering::Relaxed);
        let body = (!body.is_empty()).then(|| body.boxed_unsync());
        let failed = |error: NodeError| {
            refused_or(error).unwrap_or_else(|why| unreachable(format!("error trying to reach service: {why}")))
        };
        if let Some(client) = upgrade {
            let held = parts.extensions.remove::<HeldValue>();
            keep_upgrade(&mut head.headers, &parts.headers);
            let sent = timeout(UPGRADE_TIME, self.client.send(&address, head, body)).await;
            let late = |_| unreachable("error trying to reach service: context deadline exceeded".to_owned());
            let (answer, permit) = sent.map_err(late)?.map_err(failed)?;
            return Ok(begun_tunnel(client, answer, (permit, held), &self.tasks));
        }
        let forwarded: HeaderValue = escaped_path(&format!("{prefix}{path}")).parse().map_err(|_| unwritable())?;
        head.headers.insert(FORWARDED_URI, forwarded);
        let of_client = head.headers.get(HOST).cloned();
        if is_page_request(&head.headers) {
            // The links of a compressed page could not be rewritten.
            head.headers.remove(ACCEPT_ENCODING);
        }
        let (answer, permit) = self.client.send(&address, head, body).await.map_err(failed)?;
        if answer.status().is_informational() {
            return Err(unreachable("error trying to reach service: the backend tried to switch protocols".to_owned()));
        }
        let mut response = pass(answer.map(ForwardedBody::from), permit, Some(stopping));
        let own = [
            Some(host_port(&address.host, address.port)),
            of_client.and_then(|host| host.to_str().ok().map(str::to_owned)),
        ];
        rewrite_location(response.headers_mut(), &prefix, own.as_slice());
        if parts.method == Method::HEAD || !is_page(response.headers()) {
            return Ok(response);
        }
        response.headers_mut().remove(CONTENT_LENGTH);
        let rewrite = move |link: &str| proxied_link(link, &prefix, &own);
        Ok(response.map(|body| stream(RewrittenPage { inner: body, rewriter: Some(LinkRewriter::new(rewrite)) })))
    }
}

/// Returns true for a request that accepts HTML, as browsers send it.
fn is_page_request(headers: &HeaderMap) -> bool {
    headers.get_all(ACCEPT).iter().any(|accept| accept.to_str().is_ok_and(|accept| accept.contains("text/html")))
}

/// Returns true for an HTML page without a compression.
fn is_page(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    let encoding = headers.get(CONTENT_ENCODING).map_or(&b""[..], HeaderValue::as_bytes);
    kind.eq_ignore_ascii_case("text/html") && (encoding.is_empty() || encoding.eq_ignore_ascii_case(b"identity"))
}

/// The body of a page whose links lead through the proxy.
struct RewrittenPage<R> {
    inner: ResponseBody,
    /// Absent after the end of the page.
    rewriter: Option<LinkRewriter<R>>,
}

impl<R: Fn(&str) -> Option<String> + Unpin> Body for RewrittenPage<R> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        loop {
            let Some(rewriter) = &mut this.rewriter else { return Poll::Ready(None) };
            let mut out = Vec::new();
            match ready!(Pin::new(&mut this.inner).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) => rewriter.feed(&bytes, &mut out),
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => {
                    rewriter.finish(&mut out);
                    this.rewriter = None;
                }
            }
            if !out.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(out.into()))));
            }
        }
    }
}

fn unreachable(message: String) -> ApiError {
    ApiError::ServiceUnavailable { message, retry_after_seconds: None }
}

/// The decoded path after `proxy`. Empty if nothing follows, not even a slash.
fn path_of(rest: &[String], ends_with_slash: bool) -> String {
    let path: String = rest.iter().map(|part| format!("/{part}")).collect();
    if ends_with_slash { path + "/" } else { path }
}

/// A redirect to the same path with a final slash, so that relative links of the page stay below it.
fn redirected(uri: &Uri) -> Result<Response<ResponseBody>, ApiError> {
    let query = uri.query().map_or_else(String::new, |query| format!("?{query}"));
    let location = HeaderValue::try_from(format!("{}/{query}", uri.path())).map_err(|_| unwritable())?;
    let mut response = Response::new(empty());
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    response.headers_mut().insert(LOCATION, location);
    Ok(response)
}

/// Rewrites a redirect to one of the endpoint's own hosts to the path of the proxy. The client gets other redirects
/// unchanged.
fn rewrite_location(headers: &mut HeaderMap, prefix: &str, own_hosts: &[Option<String>]) {
    let Some(location) = headers.get(LOCATION).and_then(|location| location.to_str().ok()) else { return };
    let rewritten = proxied_link(location, prefix, own_hosts).and_then(|link| HeaderValue::try_from(link).ok());
    if let Some(rewritten) = rewritten {
        headers.insert(LOCATION, rewritten);
    }
}

/// The path of the proxy for a link to one of the endpoint's own hosts. `None` for other links.
fn proxied_link(location: &str, prefix: &str, own_hosts: &[Option<String>]) -> Option<String> {
    let uri = location.parse::<Uri>().ok()?;
    let (path_and_query, is_own) = match uri.authority() {
        Some(authority) => {
            let is_own = own_hosts.iter().flatten().any(|own| authority.as_str() == own);
            (uri.path_and_query().map_or("/", |path| path.as_str()), is_own)
        }
        // A location that begins with `//host/` names another host.
        None => (location, !location.starts_with("//")),
    };
    if !is_own || !path_and_query.starts_with('/') {
        return None;
    }
    let (path, rest) = path_and_query.split_at(path_and_query.find(['?', '#']).unwrap_or(path_and_query.len()));
    let prefix = escaped_path(prefix);
    Some(if path == prefix || path.starts_with(&format!("{prefix}/")) {
        format!("{path}{rest}")
    } else {
        let cleaned = clean_path(path);
        let slash = if path.ends_with('/') && cleaned != "/" { "/" } else { "" };
        format!("{prefix}{cleaned}{slash}{rest}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_to_the_server_itself_lead_through_the_proxy() {
        let check = |location: &str, expected: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(LOCATION, location.parse().unwrap());
            let own = [Some("10.0.0.7:80".to_owned()), Some("api:6443".to_owned())];
            rewrite_location(&mut headers, "/api/v1/namespaces/a/pods/p/proxy", &own);
            assert_eq!(headers[LOCATION], expected, "{location}");
        };
        let proxy = "/api/v1/namespaces/a/pods/p/proxy";
        check("/login?a=b", &format!("{proxy}/login?a=b"));
        check("/a/../../b/", &format!("{proxy}/b/"));
        check("/", &format!("{proxy}/"));
        check("http://10.0.0.7:80/x", &format!("{proxy}/x"));
        check("https://api:6443/x", &format!("{proxy}/x"));
        check(&format!("{proxy}/x"), &format!("{proxy}/x"));
        for other in ["http://169.254.169.254/latest", "//evil.example/x", "relative", "https://evil.example/"] {
            check(other, other);
        }
    }

    #[test]
    fn the_path_behind_the_proxy_keeps_its_last_slash() {
        let of =
            |rest: &[&str], slash: bool| path_of(&rest.iter().map(|&part| part.to_owned()).collect::<Vec<_>>(), slash);
        assert_eq!(of(&[], false), "");
        assert_eq!(of(&[], true), "/");
        assert_eq!(of(&["a", "b c"], false), "/a/b c");
        assert_eq!(of(&["a"], true), "/a/");
    }
}
