//! Tests of forwarded requests: the request that the aggregated server receives, and the part of its response that the
//! client gets.
//!
//! Streamed bodies are in `streams.rs`, upgraded connections in `upgrades.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::Method;
use keelson_testkit::{Answer, Call, UpstreamRequest, upstream_answer, upstream_echo};
use serde_json::{Value, json};

use crate::lab::{Lab, PATIENCE, THINGS};
use crate::{MERGE, SERVICES, condition, until};

/// The header fields that the aggregated server received, without those that differ from run to run.
fn fields(told: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let all = told["headers"].as_array().unwrap().iter().map(|pair| (text(&pair[0]), text(&pair[1])));
    let mut fields: Vec<String> = all
        .filter(|(name, _)| !matches!(&**name, "audit-id" | "host" | "x-forwarded-host"))
        .map(|(name, value)| match value.split_once("X509SHA256=") {
            Some((before, _)) => format!("{name}: {before}X509SHA256="),
            None => format!("{name}: {value}"),
        })
        .collect();
    fields.sort();
    fields
}

/// The headers of every forwarded request, and these additional ones.
fn with_usual(path: &str, more: &[&str]) -> Vec<String> {
    let uri = format!("x-forwarded-uri: {path}");
    let usual = [
        "x-forwarded-for: 127.0.0.1",
        "x-forwarded-proto: https",
        &uri,
        "x-remote-extra-authentication.kubernetes.io%2fcredential-id: X509SHA256=",
        "x-remote-group: system:authenticated",
        "x-remote-group: system:masters",
        "x-remote-user: keelson-admin",
    ];
    let mut fields: Vec<String> = usual.iter().chain(more).map(ToString::to_string).collect();
    fields.sort();
    fields
}

async fn body_of(call: Call) -> Value {
    call.await.expect(200).json()
}

#[tokio::test]
async fn requests_arrive_as_they_were_sent() {
    for lab in [Lab::start(upstream_echo).await, Lab::http1(upstream_echo).await] {
        let raw = &lab.raw;
        let seen = body_of(raw.get(format!("{THINGS}/a")).header("accept", "application/json")).await;
        assert_eq!((&seen["method"], &seen["path"]), (&json!("GET"), &json!(format!("{THINGS}/a"))));
        assert_eq!(seen["serverName"], json!("echo.agg.svc"));
        assert_eq!(fields(&seen), with_usual(&format!("{THINGS}/a"), &["accept: application/json"]));
        let thing = json!({"kind": "Thing", "metadata": {"name": "a"}});
        let length = format!("content-length: {}", thing.to_string().len());
        for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            let seen = body_of(raw.call(method.clone(), format!("{THINGS}/a")).json(&thing)).await;
            assert_eq!((&seen["method"], &seen["body"]), (&json!(method.as_str()), &json!(thing.to_string())));
            let more = [&*length, "content-type: application/json"];
            assert_eq!(fields(&seen), with_usual(&format!("{THINGS}/a"), &more));
        }
        for method in ["OPTIONS", "FROB"] {
            let seen = body_of(raw.call(Method::from_bytes(method.as_bytes()).unwrap(), THINGS)).await;
            assert_eq!(seen["method"], json!(method));
        }
        let head = raw.call(Method::HEAD, THINGS).await.expect(200);
        assert!(head.body.is_empty() && head.header("content-type") == "application/json");
        let odd = raw.call(Method::POST, THINGS).header("content-type", "text/odd").body("just text");
        assert_eq!(body_of(odd).await["body"], json!("just text"));
        // The client's request uses HTTP/2 too.
        let seen = body_of(raw.http2().get(format!("{THINGS}/a"))).await;
        assert_eq!(fields(&seen), with_usual(&format!("{THINGS}/a"), &[]));
        let large = "x".repeat(4 << 20);
        let seen = body_of(raw.call(Method::POST, THINGS).body(large.clone())).await;
        assert!(seen["body"].as_str() == Some(&large), "more than this server takes itself");
    }
}

#[tokio::test]
async fn connections_speak_the_best_protocol_of_the_server_and_are_used_again() {
    for (lab, protocol) in
        [(Lab::start(upstream_echo).await, "HTTP/2.0"), (Lab::http1(upstream_echo).await, "HTTP/1.1")]
    {
        // An ordinary request uses a connection exclusively. Watches share one if the aggregated server supports
        // HTTP/2.
        for _ in 0..50 {
            assert_eq!(body_of(lab.raw.get(THINGS)).await["protocol"], json!("HTTP/1.1"));
            assert_eq!(body_of(lab.raw.get(format!("{THINGS}?watch=true"))).await["protocol"], json!(protocol));
        }
        // Some connections belong to the server's own discovery requests.
        assert!(lab.upstream.open_connections() < 20, "{protocol}");
    }
}

#[tokio::test]
async fn paths_and_queries_are_written_as_they_are_validated() {
    let lab = Lab::start(upstream_echo).await;
    let check = async |given: &str, expected: &str, uri: &str| {
        let seen = body_of(lab.raw.get(format!("/apis/px.example.org/v1{given}"))).await;
        assert_eq!(seen["path"], json!(format!("/apis/px.example.org/v1{expected}")), "{given}");
        let uri = format!("x-forwarded-uri: /apis/px.example.org/v1{uri}");
        assert!(fields(&seen).contains(&uri), "{given}: {seen}");
    };
    check("/", "/", "/").await;
    check("/things/a/proxy/some/where", "/things/a/proxy/some/where", "/things/a/proxy/some/where").await;
    check("/things/a%2Fb", "/things/a/b", "/things/a/b").await;
    check("/things/a%20%C3%A9", "/things/a%20%C3%A9", "/things/a%20%C3%A9").await;
    check("/things/a+b:c", "/things/a+b:c", "/things/a+b:c").await;
    check("/namespaces//x/things", "/namespaces//x/things", "/namespaces/x/things").await;
    check("/things/../things", "/things/../things", "/things").await;
    check("/things/", "/things/", "/things/").await;
    check("/things?b=2&a=1&a=0&c&d=%20+%2B%26&=e", "/things?=e&a=1&a=0&b=2&c=&d=++%2B%26", "/things").await;
    check("/things?a=1;b=2&c=3", "/things?c=3", "/things").await;
    check("/things?a=%zz&c=3", "/things?c=3", "/things").await;
    for other in ["//apis/px.example.org/v1/things", "/apis/px.example.org/v2", "/apis/px.example.org/v2/things"] {
        let answer = lab.raw.get(other).await.expect(404);
        assert_eq!(answer.text(), "404 page not found\n", "{other}");
    }
}

#[tokio::test]
async fn user_headers_of_clients_are_ignored() {
    let lab = Lab::start(upstream_echo).await;
    let forged = lab
        .raw
        .get(THINGS)
        .header("x-remote-user", "root")
        .header("x-remote-uid", "0")
        .header("x-remote-group", "all")
        .header("x-remote-extra-scopes", "all")
        .header("x-forwarded-for", "203.0.113.7")
        .header("x-forwarded-host", "evil")
        .header("x-forwarded-proto", "http")
        .header("x-forwarded-uri", "/evil")
        .header("forwarded", "for=evil")
        .header("cookie", "a=b")
        .header("authorization", "Bearer x");
    let seen = fields(&body_of(forged).await);
    let mut expected = with_usual(THINGS, &["forwarded: for=evil"]);
    expected.retain(|field| !field.starts_with("x-forwarded-for"));
    expected.push("x-forwarded-for: 203.0.113.7, 127.0.0.1".to_owned());
    expected.sort();
    assert_eq!(seen, expected);
    let usual = lab
        .raw
        .get(THINGS)
        .header("connection", "X-Drop")
        .header("x-drop", "1")
        .header("keep-alive", "5")
        .header("te", "trailers")
        .header("proxy-authorization", "x")
        .header("accept-encoding", "gzip, br")
        .header("if-none-match", "\"x\"")
        .header("user-agent", "me/1.0")
        .header("upgrade", "websocket")
        .header("audit-id", "mine");
    let seen = body_of(usual).await;
    let more = ["accept-encoding: gzip, br", "if-none-match: \"x\"", "te: trailers", "user-agent: me/1.0"];
    assert_eq!(fields(&seen), with_usual(THINGS, &more));
    assert!(seen["headers"].as_array().unwrap().contains(&json!(["audit-id", "mine"])));
}

/// Receivers trim spaces around the value of a field, so the name of a group could become that of another group.
#[tokio::test]
async fn names_that_would_arrive_as_others_are_not_passed_on() {
    let lab = Lab::start(upstream_echo).await;
    let raw = lab.raw.http2();
    let asked = |field: &str, value: &str| {
        let call = raw.get(THINGS).header("impersonate-user", "ann").header("impersonate-group", "system:masters");
        call.also_header(field, value)
    };
    body_of(asked("impersonate-group", "two words")).await;
    for (field, value) in [
        ("impersonate-group", " system:nodes"),
        ("impersonate-group", "system:nodes "),
        ("impersonate-group", "\tsystem:nodes"),
        ("impersonate-extra-scopes", " all"),
    ] {
        let refused = asked(field, value).await.expect(500);
        assert_eq!(refused.text(), "the request can't be passed on\n", "{field}: {value:?}");
    }
}

/// Each server would add its own entry and forward the request again.
#[tokio::test]
async fn forwarding_loops_are_detected() {
    let lab = Lab::start(upstream_echo).await;
    let through =
        |proxies: usize| lab.raw.get(THINGS).header("x-forwarded-for", ["203.0.113.7"].repeat(proxies).join(", "));
    body_of(through(15)).await;
    assert_eq!(through(16).await.expect(508).text(), "the request is passed on in a circle\n");
}

#[tokio::test]
async fn forbidden_requests_are_not_forwarded() {
    let lab = Lab::start(upstream_echo).await;
    let anonymous = lab.server.anonymous();
    let refused = anonymous.get(THINGS).await;
    assert!(matches!(refused.status, 401 | 403), "{}", refused.text());
    assert_eq!(anonymous.get("/apis/px.example.org/v1/things/../things").await.status, refused.status);
    let wrong = anonymous.get(THINGS).header("authorization", "Bearer x").await.expect(401);
    assert_eq!(wrong.json()["reason"], json!("Unauthorized"));
    let late = lab.raw.get(format!("{THINGS}?timeout=abc")).await.expect(400).json();
    assert_eq!(late["message"], json!("invalid timeout specified in the request URL - time: invalid duration \"abc\""));
}

fn header(answer: &Answer, name: &str) -> String {
    answer.header(name).to_owned()
}

#[tokio::test]
async fn responses_are_forwarded_unchanged() {
    let lab = Lab::http1(async |request: UpstreamRequest| {
        let path = request.uri().path().to_owned();
        let code = path.rsplit('/').next().and_then(|code| code.parse().ok());
        let mut answer = upstream_answer(code.unwrap_or(200), "application/json", "{\"kind\":\"Status\"}");
        let fields = [
            ("audit-id", "theirs"),
            ("cache-control", "max-age=60"),
            ("etag", "\"e\""),
            ("retry-after", "7"),
            ("server", "backend"),
            ("warning", "199 - \"odd\""),
            ("x-kubernetes-other", "passes"),
            ("x-kubernetes-pf-flowschema-uid", "theirs"),
            ("x-custom", "1"),
            ("keep-alive", "5"),
            ("proxy-authenticate", "x"),
        ];
        for (name, value) in fields {
            answer.headers_mut().insert(name, value.parse().unwrap());
        }
        if path.contains("moved") {
            answer.headers_mut().insert("location", "/elsewhere".parse().unwrap());
        }
        answer
    })
    .await;
    let answer = lab.raw.get(format!("{THINGS}/200")).await.expect(200);
    let of = |name: &str| header(&answer, name);
    assert_eq!(of("cache-control"), "no-cache, private");
    assert_eq!((of("etag"), of("retry-after")), ("\"e\"".to_owned(), "7".to_owned()));
    assert_eq!((of("warning"), of("x-kubernetes-other")), ("199 - \"odd\"".to_owned(), "passes".to_owned()));
    assert!(of("server").is_empty() && of("x-custom").is_empty());
    for own in ["audit-id", "x-kubernetes-pf-flowschema-uid", "x-kubernetes-pf-prioritylevel-uid"] {
        assert!(!of(own).is_empty() && of(own) != "theirs", "{own}");
    }
    assert!(of("keep-alive").is_empty() && of("proxy-authenticate").is_empty());
    for code in [201, 401, 409, 429, 500, 503, 599] {
        let answer = lab.raw.get(format!("{THINGS}/{code}")).await.expect(code);
        assert_eq!(answer.text(), "{\"kind\":\"Status\"}", "{code}");
    }
    for code in [301, 302, 303, 307, 308] {
        let answer = lab.raw.get(format!("{THINGS}/moved/{code}")).await.expect(502);
        assert_eq!(answer.text(), "the backend attempted to redirect this request, which is not permitted");
        assert_eq!(answer.header("location"), "", "{code}");
        assert_eq!(lab.raw.get(format!("{THINGS}/{code}")).await.status, code, "without a place it is an answer");
    }
    let moved = lab.raw.get(format!("{THINGS}/moved/201")).await.expect(201);
    assert_eq!(moved.header("location"), "/elsewhere");
}

/// The console has the same origin as the responses of aggregated servers that a browser opens.
#[tokio::test]
async fn an_aggregated_server_says_nothing_to_browsers_about_the_origin() {
    const FIELDS: [(&str, &str); 28] = [
        ("access-control-allow-credentials", "true"),
        ("access-control-allow-headers", "authorization"),
        ("access-control-allow-origin", "*"),
        ("access-control-expose-headers", "*"),
        ("access-control-max-age", "60"),
        ("alt-svc", "h3=\":443\""),
        ("clear-site-data", "\"*\""),
        ("content-security-policy", "default-src * 'unsafe-inline'"),
        ("content-security-policy-report-only", "default-src *"),
        ("cross-origin-opener-policy", "unsafe-none"),
        ("expires", "Fri, 31 Dec 2077 23:59:59 GMT"),
        ("keelson-cluster", "7"),
        ("link", "</apis/px.example.org/v1/things/css>; rel=stylesheet"),
        ("nel", "{}"),
        ("public-key-pins", "x"),
        ("no-vary-search", "params"),
        ("refresh", "0; url=https://example.com"),
        ("report-to", "{}"),
        ("reporting-endpoints", "a=\"/a\""),
        ("secure-session-registration", "(ES256);path=\"/a\""),
        ("service-worker-allowed", "/"),
        ("set-cookie", "a=b"),
        ("sourcemap", "/a"),
        ("strict-transport-security", "max-age=0"),
        ("www-authenticate", "Basic"),
        ("x-frame-options", "ALLOWALL"),
        ("x-made-up-tomorrow", "?1"),
        ("x-remote-user", "root"),
    ];
    let lab = Lab::start(async |request: UpstreamRequest| {
        let code = if request.uri().path().ends_with("/401") { 401 } else { 200 };
        let mut answer = upstream_answer(code, "text/html", "<script>alert(1)</script>");
        for (name, value) in FIELDS {
            answer.headers_mut().insert(name, value.parse().unwrap());
        }
        answer.headers_mut().insert("cache-control", "max-age=31536000, immutable".parse().unwrap());
        for number in 0..60 {
            let warning = format!("299 - \"{number} {}\"", "x".repeat(200));
            answer.headers_mut().append("warning", warning.parse().unwrap());
        }
        answer
    })
    .await;
    for path in ["/200", "/401", "?watch=1"] {
        let answer = lab.raw.get(format!("{THINGS}{path}")).await;
        for (name, _) in FIELDS.iter().filter(|(name, _)| *name != "content-security-policy") {
            assert_eq!(answer.header(name), "", "{name} of {path}");
        }
        let policies: Vec<_> = answer.headers.get_all("content-security-policy").iter().collect();
        assert_eq!(policies, ["default-src 'none'; sandbox; frame-ancestors 'none'"], "{path}");
        assert_eq!(answer.header("x-content-type-options"), "nosniff", "{path}");
        assert_eq!(answer.header("cache-control"), "no-cache, private", "{path}");
        let warned: Vec<usize> = answer.headers.get_all("warning").iter().map(http::HeaderValue::len).collect();
        assert!((1..=64).contains(&warned.len()) && warned.iter().sum::<usize>() < 6_000, "{warned:?}");
    }
    let answer = lab.raw.get(format!("{THINGS}/js")).header("service-worker", "script").await.expect(403);
    assert_eq!(answer.json()["reason"], "Forbidden");
    lab.raw.get(format!("{THINGS}/js")).await.expect(200);
}

#[tokio::test]
async fn an_unavailable_server_is_not_called() {
    let lab = Lab::start(upstream_echo).await;
    let elsewhere = json!({"spec": {"service": {"port": 1}}});
    lab.raw.patch(format!("{SERVICES}/v1.px.example.org"), MERGE, &elsewhere).await.expect(200);
    // Requests are forwarded until the server has noticed the false condition. They also fail with 503.
    until(&lab.raw, &format!("{SERVICES}/v1.px.example.org"), |service| condition(service).0 == "False").await;
    lab.until_told(|status, text| status == 503 && text == "service unavailable\n").await;
    for path in [THINGS, "/apis/px.example.org/v1", "/apis/px.example.org/v1/things?watch=1"] {
        let answer = lab.raw.get(path).await.expect(503);
        assert_eq!(answer.text(), "service unavailable\n");
        assert_eq!(answer.header("content-type"), "text/plain; charset=utf-8");
        assert_eq!(answer.header("x-content-type-options"), "nosniff");
        assert_eq!(answer.header("cache-control"), "no-cache, private");
        assert!(!answer.header("audit-id").is_empty());
    }
    lab.raw.delete(format!("{SERVICES}/v1.px.example.org")).await.expect(200);
    lab.until(|status| status == 404).await;
    assert_eq!(lab.raw.get(THINGS).await.expect(404).text(), "404 page not found\n");
}

#[tokio::test]
async fn proxy_failures_have_upstream_errors() {
    let lab = Lab::raw(|head| {
        let bytes: &[u8] = if head.contains("/short") {
            b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nfew"
        } else if head.contains("/unfinished") {
            b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\n\r\n5\r\nsome \r\n5\r\nwords\r\n"
        } else if head.contains("/until-close") {
            b"HTTP/1.0 200 OK\r\ncontent-type: text/plain\r\n\r\nall of it"
        } else if head.contains("/early") {
            b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
        } else if head.contains("/no-status") {
            b"hello\r\n\r\n"
        } else if head.contains("/cut-status") {
            b"HTTP/1.1 2"
        } else if head.contains("/no-colon") {
            b"HTTP/1.1 200 OK\r\nno colon here\r\n\r\n"
        } else if head.contains("/bad-length") {
            b"HTTP/1.1 200 OK\r\ncontent-length: abc\r\n\r\n"
        } else if head.contains("/switch") {
            b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n"
        } else {
            b""
        };
        bytes.to_vec()
    })
    .await;
    for call in [lab.raw.get(THINGS), lab.raw.post(THINGS, &json!({}))] {
        let answer = call.await.expect(503);
        assert_eq!(answer.text(), "error trying to reach service: EOF\n");
        assert_eq!(answer.header("content-type"), "text/plain; charset=utf-8");
    }
    let bad = [
        ("no-status", "malformed HTTP response \"hello\""),
        ("cut-status", "unexpected EOF"),
        ("no-colon", "malformed MIME header: missing colon: \"no colon here\""),
        ("bad-length", "bad Content-Length \"abc\""),
    ];
    for (path, why) in bad {
        let answer = lab.raw.get(format!("{THINGS}/{path}")).await.expect(503).text();
        let broken = "error trying to reach service: net/http: HTTP/1.x transport connection broken: ";
        assert_eq!(answer, format!("{broken}{why}\n"), "{path}");
    }
    let switched = "error trying to reach service: backend tried to switch protocol \"h2c\" when \"\" was requested\n";
    assert_eq!(lab.raw.get(format!("{THINGS}/switch")).await.expect(503).text(), switched);
    assert!(lab.raw.get(format!("{THINGS}/short")).try_send().await.is_err(), "a part is never taken for the whole");
    // The client gets all data from before the break, such as the last event of a watch, and notices the break.
    let mut unfinished = lab.raw.get(format!("{THINGS}/unfinished")).stream().await;
    let mut came = Vec::new();
    let end = loop {
        match unfinished.next_chunk().await {
            Ok(Some(chunk)) => came.extend_from_slice(&chunk),
            end => break end,
        }
    };
    assert!(&*came == b"some words" && end.is_err(), "{came:?} {end:?}");
    assert_eq!(lab.raw.get(format!("{THINGS}/until-close")).await.expect(200).text(), "all of it");
    assert_eq!(lab.raw.get(format!("{THINGS}/early")).await.expect(200).text(), "ok");
    let port = lab.upstream.addr().port();
    drop(lab.upstream);
    let answer = lab.raw.get(THINGS).await.expect(503).text();
    let refused = answer.starts_with("error trying to reach service: dial tcp ")
        && answer.ends_with(&format!(":{port}: connect: connection refused\n"));
    assert!(refused, "{answer}");
    lab.raw.delete("/api/v1/namespaces/agg/services/echo").await.expect(200);
    assert_eq!(lab.raw.get(THINGS).await.expect(503).text(), "service unavailable\n");
}

/// If two servers disagree about the end of a request, the second one sees a further request, which was never
/// authorized.
#[tokio::test]
async fn ambiguous_framing_smuggles_no_second_request() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    let smuggled = Arc::new(AtomicBool::new(false));
    let seen = smuggled.clone();
    let lab = Lab::http1(move |request: UpstreamRequest| {
        seen.fetch_or(request.uri().path().ends_with("/smuggled"), Ordering::SeqCst);
        upstream_echo(request)
    })
    .await;
    let inner = format!("GET {THINGS}/smuggled HTTP/1.1\r\nhost: a\r\n\r\n");
    for framing in [
        format!("content-length: 5\r\ncontent-length: {}", 5 + inner.len()),
        "content-length: +5".to_owned(),
        "content-length : 5".to_owned(),
        "content-length: 5, 6".to_owned(),
        "transfer-encoding: xchunked".to_owned(),
        "transfer-encoding: chunked, identity".to_owned(),
        "transfer-encoding:\x0bchunked".to_owned(),
        " transfer-encoding: chunked".to_owned(),
    ] {
        let mut wire = lab.raw.connect().await;
        let head = format!("POST {THINGS} HTTP/1.1\r\nhost: a\r\n{framing}\r\n\r\n");
        wire.write_all(format!("{head}0\r\n\r\n{inner}").as_bytes()).await.unwrap();
        let mut answers = Vec::new();
        // The server closes the connection, since the start of the next request is unknown.
        let _ = tokio::time::timeout(PATIENCE, wire.read_to_end(&mut answers)).await.expect("it is kept open");
        let text = String::from_utf8_lossy(&answers);
        assert!(text.starts_with("HTTP/1.1 400 ") && text.matches("HTTP/1.1 ").count() == 1, "{framing}: {text}");
        assert!(!smuggled.load(Ordering::SeqCst), "{framing}");
    }
}
