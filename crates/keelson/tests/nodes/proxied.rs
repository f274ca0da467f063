//! Tests of proxied requests: methods, paths, queries, bodies, redirects and upgrades.
//!
//! The kubelet has an address of the machine that is not loopback, since the server rejects loopback.

use http::Method;
use keelson_testkit::{HANDSHAKE, KubeletDouble};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::{Lab, NAMESPACE, check};

async fn lab() -> Lab {
    Lab::with(KubeletDouble::at(KubeletDouble::outer_address()).await, |_, _| {}).await
}

/// The values of a field that the kubelet received, as it returns them.
fn field<'v>(told: &'v Value, name: &str) -> Vec<&'v str> {
    let fields = told["headers"].as_array().unwrap().iter();
    fields.filter(|pair| pair[0] == name).map(|pair| pair[1].as_str().unwrap()).collect()
}

#[tokio::test]
async fn all_methods_reach_a_node_with_path_query_and_body() {
    let lab = lab().await;
    for method in [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS] {
        let call = lab.raw.call(method.clone(), "/api/v1/nodes/n/proxy/a%20b/c/?x=1&keelson.io/where=%2F&y");
        let call = if method == Method::GET { call } else { call.body("some body") };
        let response_body = call.header("accept", "text/x").await.expect(200).json();
        assert_eq!(response_body["method"], method.as_str());
        assert_eq!(response_body["path"], "/a%20b/c/?x=1&keelson.io/where=%2F&y");
        assert_eq!(response_body["body"], if method == Method::GET { "" } else { "some body" });
        assert_eq!(field(&response_body, "accept"), ["text/x"]);
        assert_eq!(field(&response_body, "x-forwarded-uri"), ["/api/v1/nodes/n/proxy/a%20b/c/"]);
    }
    let head = lab.raw.call(Method::HEAD, "/api/v1/nodes/n/proxy/metrics").await;
    assert_eq!((head.status, head.body.len()), (200, 0));
    let port = lab.kubelet.addr().port();
    lab.raw.get(format!("/api/v1/nodes/n:{port}/proxy/x")).await.expect(200);
    lab.raw.get(format!("/api/v1/nodes/https:n:{port}/proxy/x")).await.expect(200);
    let invalid = lab.raw.get("/api/v1/nodes/ftp:n:1/proxy/x").await;
    check(&invalid, 400, "BadRequest", "invalid node request \"ftp:n:1\"");
}

#[tokio::test]
async fn a_proxy_without_a_slash_is_redirected_to_one() {
    let lab = lab().await;
    let moved = lab.raw.get("/api/v1/nodes/n/proxy?a=b").await;
    assert_eq!((moved.status, moved.header("location")), (301, "/api/v1/nodes/n/proxy/?a=b"));
    assert!(lab.kubelet.requests().is_empty());
    let body = lab.raw.get("/api/v1/nodes/n/proxy/").await.expect(200).json();
    assert_eq!(body["path"], "/");
}

#[tokio::test]
async fn user_and_address_headers_come_from_the_server() {
    let lab = lab().await;
    let call = lab.raw.get("/api/v1/nodes/n/proxy/x").header("cookie", "a=b").header("authorization", "Bearer x");
    let call = call.header("x-remote-user", "admin").header("x-remote-extra-a", "b").header("x-forwarded-uri", "/evil");
    let call = call.header("x-forwarded-host", "evil").header("x-forwarded-for", "192.0.2.1");
    let body = call.header("connection", "close, x-drop").header("x-drop", "1").await.expect(200).json();
    for dropped in ["cookie", "authorization", "x-remote-user", "x-remote-extra-a", "x-forwarded-host", "x-drop"] {
        assert!(field(&body, dropped).is_empty(), "{dropped}: {body}");
    }
    assert_eq!(field(&body, "x-forwarded-for"), ["192.0.2.1, 127.0.0.1"]);
    assert_eq!(field(&body, "x-forwarded-uri"), ["/api/v1/nodes/n/proxy/x"]);
}

/// Starts a server for pods that answers each request with these bytes. Returns its port.
async fn web(answer: &'static str) -> u16 {
    let listener = TcpListener::bind((KubeletDouble::outer_address(), 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let Ok(byte) = stream.read_u8().await else { return };
                    head.push(byte);
                }
                let _ = stream.write_all(answer.as_bytes()).await;
                if answer.starts_with("HTTP/1.1 101") {
                    let mut heard = [0; 5];
                    let _ = stream.read_exact(&mut heard).await;
                    let _ = stream.write_all(&[b"heard ", &heard[..]].concat()).await;
                }
                let _ = stream.shutdown().await;
            });
        }
    });
    port
}

#[tokio::test]
async fn pods_are_reached_over_plain_http() {
    let lab = lab().await;
    let page = "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nset-cookie: a=b\r\n\
                access-control-allow-origin: *\r\ncontent-length: 2\r\n\r\nhi";
    let port = web(page).await;
    lab.pod("p", "n").await;
    lab.pod_address("p", &KubeletDouble::outer_address().to_string()).await;
    let answer = lab.raw.get(format!("{NAMESPACE}/pods/p:{port}/proxy/a")).await.expect(200);
    assert_eq!((answer.text().as_str(), answer.header("content-type")), ("hi", "text/plain"));
    assert_eq!((answer.header("set-cookie"), answer.header("access-control-allow-origin")), ("", ""));
    let closed = lab.raw.get(format!("{NAMESPACE}/pods/p:1/proxy/a")).await;
    assert_eq!(closed.status, 503, "{}", closed.text());
    let message = closed.json()["message"].as_str().unwrap().to_owned();
    assert!(message.starts_with("error trying to reach service: dial tcp "), "{message}");
    let unknown = lab.raw.get(format!("{NAMESPACE}/pods/p:web/proxy/a")).await;
    let why = "error trying to reach service: dial tcp: lookup tcp/web: unknown port";
    check(&unknown, 503, "ServiceUnavailable", why);
}

#[tokio::test]
async fn redirects_are_passed_on_and_not_followed() {
    let lab = lab().await;
    lab.pod("p", "n").await;
    lab.pod_address("p", &KubeletDouble::outer_address().to_string()).await;
    for (location, expected) in
        [("/login?x=1", Some("/login?x=1")), ("http://169.254.169.254/latest", None), ("https://evil.example/", None)]
    {
        let answer = format!("HTTP/1.1 302 Found\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n");
        let port = web(answer.leak()).await;
        let proxy = format!("{NAMESPACE}/pods/p:{port}/proxy");
        let moved = lab.raw.get(format!("{proxy}/a")).await;
        let expected = expected.map_or_else(|| location.to_owned(), |path| format!("{proxy}{path}"));
        assert_eq!((moved.status, moved.header("location")), (302, expected.as_str()));
    }
}

#[tokio::test]
async fn an_upgrade_is_passed_to_a_pod() {
    let lab = lab().await;
    lab.pod("p", "n").await;
    lab.pod_address("p", &KubeletDouble::outer_address().to_string()).await;
    let port = web("HTTP/1.1 101 Switching\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\r\n").await;
    let mut wire = lab.raw.connect().await;
    let fields: String = HANDSHAKE.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let head = format!("GET {NAMESPACE}/pods/p:{port}/proxy/ws HTTP/1.1\r\nhost: a\r\n{fields}\r\nhello");
    wire.write_all(head.as_bytes()).await.unwrap();
    let mut heard = Vec::new();
    tokio::time::timeout(super::PATIENCE, wire.read_to_end(&mut heard)).await.unwrap().unwrap();
    let heard = String::from_utf8_lossy(&heard).into_owned();
    assert!(heard.starts_with("HTTP/1.1 101 ") && heard.ends_with("heard hello"), "{heard}");
}

#[tokio::test]
async fn the_right_to_the_proxy_is_needed() {
    let lab = lab().await;
    lab.allow("eve", &["nodes", "pods", "services"], &["*"]).await;
    let refused = lab.raw.get("/api/v1/nodes/n/proxy/x").header("impersonate-user", "eve").await;
    let why = "nodes \"n\" is forbidden: User \"eve\" cannot get resource \"nodes/proxy\" in API group \"\" at the cluster scope";
    check(&refused, 403, "Forbidden", why);
    let posted = lab.raw.post("/api/v1/nodes/n/proxy/run", &json!({})).header("impersonate-user", "eve").await;
    assert_eq!(posted.status, 403);
    assert!(lab.kubelet.requests().is_empty());
}

#[tokio::test]
async fn links_of_pages_lead_through_the_proxy() {
    let lab = lab().await;
    lab.pod("p", "n").await;
    lab.pod_address("p", &KubeletDouble::outer_address().to_string()).await;
    let page = "<html><a href=\"/a?x=1&amp;y=2\">a</a><a href=rel>b</a><a href='https://evil.example/'>c</a>\
                <script>'<a href=\"/s\">'</script><img src=/i></html>";
    let answer = |kind: &str, more: &str| {
        format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\n{more}content-length: {}\r\n\r\n{page}", page.len())
    };
    let port = web(answer("text/html; charset=utf-8", "").leak()).await;
    let proxy = format!("{NAMESPACE}/pods/p:{port}/proxy");
    let got = lab.raw.get(format!("{proxy}/dir/page")).header("accept", "text/html").await.expect(200);
    let expected = format!(
        "<html><a href=\"{proxy}/a?x=1&amp;y=2\">a</a><a href=rel>b</a><a href='https://evil.example/'>c</a>\
         <script>'<a href=\"/s\">'</script><img src=\"{proxy}/i\"></html>"
    );
    assert_eq!(got.text(), expected);
    // A page still runs nothing in the origin of the server.
    assert!(got.header("content-security-policy").contains("sandbox"), "{:?}", got.headers);
    for (kind, more) in [("text/plain", ""), ("application/xhtml+xml", ""), ("text/html", "content-encoding: br\r\n")] {
        let port = web(answer(kind, more).leak()).await;
        let got = lab.raw.get(format!("{NAMESPACE}/pods/p:{port}/proxy/page")).await.expect(200);
        assert_eq!(
            (got.text().as_str(), got.header("content-length")),
            (page, page.len().to_string().as_str()),
            "{kind}"
        );
    }
    // A page must not arrive compressed.
    let call = lab.raw.get("/api/v1/nodes/n/proxy/x").header("accept-encoding", "gzip");
    let told = call.header("accept", "text/html,*/*;q=0.8").await.expect(200).json();
    assert!(field(&told, "accept-encoding").is_empty(), "{told}");
}
