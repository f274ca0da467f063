//! Tests of the memory that one client's data can take in the process: at most twenty times the sent bytes, for any
//! data.
//!
//! `crates/fuzz/tests/memory.rs` counts the memory of the body parsers exactly. Here the system reports the memory of
//! the process while it answers, with everything that a request needs.

use http::Method;
use keelson_testkit::{ProcessServer, Raw};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const KEELSON: &str = env!("CARGO_BIN_EXE_keelson");
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// A resource whose objects can contain any data.
const REVISIONS: &str = "/apis/apps/v1/namespaces/default/controllerrevisions";

/// The number of bytes that the server may allocate for each sent byte.
const TAKEN_PER_BYTE: u64 = 20;
/// The number of further bytes that the process may use: stacks of threads that work for the first time, and freed
/// memory that the allocator keeps. Usually it is a few MB.
const BESIDES: u64 = 16 * 1024 * 1024;
/// The largest size of a body.
const BODY_BYTES: usize = 3 * 1024 * 1024 - 1024;

/// The memory of the process now, and its peak since the last call, in bytes.
fn memory_and_peak(server: &ProcessServer) -> (u64, u64) {
    let process = format!("/proc/{}", server.pid().unwrap());
    let status = std::fs::read_to_string(format!("{process}/status")).unwrap();
    let of = |name: &str| -> u64 {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    };
    // Resets the peak.
    std::fs::write(format!("{process}/clear_refs"), "5").unwrap();
    (of("VmRSS:"), of("VmHWM:"))
}

/// Checks that a request costs no more memory than allowed.
async fn check(server: &ProcessServer, what: &str, sent: usize, send: impl AsyncFnOnce(Raw)) {
    let (before, _) = memory_and_peak(server);
    send(server.raw()).await;
    let (_, most) = memory_and_peak(server);
    let taken = most.saturating_sub(before);
    let bound = TAKEN_PER_BYTE * sent as u64 + BESIDES;
    assert!(taken <= bound, "{what}: {taken} bytes were taken for {sent}, {bound} may be");
}

async fn server() -> ProcessServer {
    let server = ProcessServer::builder(KEELSON).start().await;
    // Memory that is allocated at first use belongs to no request.
    let raw = server.raw();
    raw.post(CONFIG_MAPS, &json!({"metadata": {"generateName": "a-"}})).await.expect(201);
    raw.get(CONFIG_MAPS).await.expect(200);
    server
}

/// An object that contains this text.
fn revision(data: &str) -> String {
    format!(
        r#"{{"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": {{"generateName": "a-"}}, "revision": 1, "data": {data}}}"#
    )
}

fn repeated(length: usize, part: &str) -> Vec<u8> {
    part.repeat(length / part.len()).into_bytes()
}

/// Posts a body to a new process: the allocator would reuse the memory of an earlier body.
async fn check_body(what: &str, path: &str, kind: &str, body: Vec<u8>) {
    let server = server().await;
    check(&server, what, body.len(), async |raw| {
        let answer = raw.call(Method::POST, path).header("content-type", kind).body(body.clone()).await;
        // An object that is too large for the store is rejected after it was parsed; some need less space in the store.
        assert!([201, 400, 413, 422, 500].contains(&answer.status), "{what}: {}", answer.status);
    })
    .await;
}

/// An element in memory is many times its text. Most of the memory is the growing array of the elements.
#[tokio::test]
async fn bodies_of_json_with_very_many_elements() {
    for (what, part) in [("texts", "\"\","), ("numbers", "1,"), ("empty objects", "{},"), ("small arrays", "[[]],")] {
        let mut elements = repeated(BODY_BYTES - 1024, part);
        elements.pop();
        let data = format!("{{\"a\": [{}]}}", String::from_utf8(elements).unwrap());
        check_body(what, REVISIONS, "application/json", revision(&data).into_bytes()).await;
    }
    let members: Vec<String> = (0..BODY_BYTES / 12).map(|number| format!("\"{number:06}\":1")).collect();
    let data = revision(&format!("{{{}}}", members.join(",")));
    check_body("members", REVISIONS, "application/json", data.into_bytes()).await;
}

#[tokio::test]
async fn bodies_of_yaml_with_very_many_elements() {
    let head = "apiVersion: apps/v1\nkind: ControllerRevision\nmetadata: {generateName: a-}\nrevision: 1\ndata:\n";
    let body = |data: String| [head, &data, "\n"].concat().into_bytes();
    for (what, part) in [("texts", "'',"), ("numbers", "1,"), ("empty arrays", "[],"), ("texts of one letter", "a,")] {
        let elements = String::from_utf8(repeated(BODY_BYTES - 1024, part)).unwrap();
        check_body(what, REVISIONS, "application/yaml", body(format!("  a: [{elements}]"))).await;
    }
    let lines = String::from_utf8(repeated(BODY_BYTES - 1024, " - 1\n")).unwrap();
    check_body("lines", REVISIONS, "application/yaml", body(format!(" a:\n{lines}"))).await;
    let members: Vec<String> = (0..BODY_BYTES / 10).map(|number| format!("{number:06}: ")).collect();
    check_body("members", REVISIONS, "application/yaml", body(format!("  {{{}}}", members.join(",")))).await;
}

/// Volumes of a pod, all of them empty messages.
#[tokio::test]
async fn bodies_of_protobuf_with_very_many_elements() {
    let field = |tag: u8, inner: &[u8]| {
        let mut field = vec![tag];
        let mut length = inner.len();
        while length >= 0x80 {
            field.push(u8::try_from(length & 0x7f | 0x80).unwrap());
            length >>= 7;
        }
        field.push(u8::try_from(length).unwrap());
        [&field, inner].concat()
    };
    let pod = field(0x12, &repeated(BODY_BYTES - 64, "\x0a\0"));
    let types = [field(0x0a, b"v1"), field(0x12, b"Pod")].concat();
    let body = [b"k8s\0".to_vec(), field(0x0a, &types), field(0x12, &pod)].concat();
    check_body("volumes", "/api/v1/namespaces/default/pods", "application/vnd.kubernetes.protobuf", body).await;
}

/// A small object below this many arrays, which is hundreds of times as long if it is indented.
fn deep(name: &str, levels: usize, content: &str) -> String {
    let data = format!("{{\"a\": {}{content}{}}}", "[".repeat(levels), "]".repeat(levels));
    revision(&data).replace(r#""generateName": "a-""#, &format!(r#""name": "{name}""#))
}

/// Reads a response to its end. Returns its length.
async fn read(raw: &Raw, path: &str, accept: &str) -> usize {
    let mut response = raw.get(path).header("accept", accept).stream().await;
    assert_eq!(response.status, 200, "{path}");
    let mut length = 0;
    while let Some(chunk) = response.next_chunk().await.unwrap() {
        length += chunk.len();
    }
    length
}

/// One list of a few objects of 200 KB took gigabytes.
#[tokio::test]
async fn indented_forms_of_deep_objects() {
    const TABLE: &str = "application/yaml;as=Table;v=v1;g=meta.k8s.io";
    let server = server().await;
    let raw = server.raw();
    let zeros = format!("[{}0]", "0,".repeat(100_000));
    let words = format!("\"{}a\"", "a ".repeat(100_000));
    for (name, content) in [("words", &words), ("zeros-1", &zeros), ("zeros-2", &zeros), ("zeros-3", &zeros)] {
        let object = deep(name, 480, content);
        raw.post(REVISIONS, &json!(null)).body(object).await.expect(201);
    }
    let one = |name: &str, query: &str| format!("{REVISIONS}/{name}{query}");
    let all = |query: &str| format!("{REVISIONS}{query}");
    for (path, accept, least) in [
        (one("words", ""), "application/yaml", 200_000),
        (one("zeros-1", ""), "application/yaml", 90_000_000),
        (one("zeros-1", "?pretty=true"), "application/json", 90_000_000),
        (all(""), "application/yaml", 270_000_000),
        (all("?pretty=true"), "application/json", 270_000_000),
        (all("?includeObject=Object"), TABLE, 270_000_000),
    ] {
        let (before, _) = memory_and_peak(&server);
        let length = read(&raw, &path, accept).await;
        let taken = memory_and_peak(&server).1.saturating_sub(before);
        assert!(length > least, "{path} in {accept} has {length} bytes");
        assert!(taken < 3 * BESIDES, "{path} in {accept}: {taken} bytes were taken");
    }
    let gzip =
        raw.get(all("")).header("accept", "application/yaml").header("accept-encoding", "gzip").await.expect(200);
    assert!(gzip.body.len() < 30_000_000, "{} bytes", gzip.body.len());
    assert!(memory_and_peak(&server).1 < 300_000_000);
}

/// Clients that read nothing filled the memory with whole responses.
#[tokio::test]
async fn unread_responses_of_a_user() {
    const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    let server = server().await;
    let raw = server.raw();
    let subject = json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ann"}]);
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"});
    raw.post(BINDINGS, &json!({"metadata": {"name": "ann"}, "roleRef": role, "subjects": subject})).await.expect(201);
    let content = format!("[{}0]", "0,".repeat(400_000));
    raw.post(REVISIONS, &json!(null)).body(deep("zeros", 400, &content)).await.expect(201);
    let other = deep("other", 400, &content);
    let yaml = |call: keelson_testkit::Call, user: &str| {
        call.header("accept", "application/yaml").header("impersonate-user", user).stream()
    };
    let mut unread = Vec::new();
    for _ in 0..16 {
        unread.push(yaml(raw.get(format!("{REVISIONS}/zeros")), "ann").await);
        unread.push(yaml(raw.post(format!("{REVISIONS}?dryRun=All"), &json!(null)).body(other.clone()), "ann").await);
        unread.push(yaml(raw.get(REVISIONS), "ann").await);
    }
    let with = |status: u16| unread.iter().filter(|response| response.status == status).count();
    assert!(with(200) > 16 && with(429) > 8, "{} responses to reads, {} refusals", with(200), with(429));
    // A dry run of a write is a write.
    assert!(with(201) > 0 && with(504) > 8, "{} responses to writes, {} are not sent", with(201), with(504));
    assert!(memory_and_peak(&server).0 < 500_000_000, "{} bytes", memory_and_peak(&server).0);
    // The memory of other users is there, and comes back.
    assert_eq!(read(&raw, &format!("{REVISIONS}/zeros"), "application/json").await / 100_000, 8);
    drop(unread);
    loop {
        if yaml(raw.get(format!("{REVISIONS}/zeros")), "ann").await.status == 200 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

/// A refused name is in the message, in the details and in the cause, each time in Go's notation.
#[tokio::test]
async fn faults_that_show_long_values() {
    let server = server().await;
    let post = async |path: &str, name: &str| {
        let body = json!({"metadata": {"name": name}}).to_string();
        let answer = server.raw().call(Method::POST, path).header("content-type", "application/json").body(body).await;
        answer.expect(422).body.len()
    };
    for character in ["\x7f", "\u{202e}", "\""] {
        let name = character.repeat(BODY_BYTES / 3 - 1024);
        let length = post(CONFIG_MAPS, &name).await;
        assert!(length < 3 * 1024 * 1024, "{length} bytes for {character:?}");
    }
    let length = post(&format!("{CONFIG_MAPS}?fieldManager={}", "%01".repeat(3000)), "a").await;
    assert!(length < 64 * 1024, "{length} bytes for a field manager");
}

/// Each connection sends most of a request header, and waits.
#[tokio::test]
async fn heads_of_requests() {
    const CONNECTIONS: usize = 100;
    let server = server().await;
    let head = format!("GET /livez HTTP/1.1\r\nhost: a\r\n{}", "a: b\r\n".repeat(90)) + &"x".repeat(16 * 1024);
    check(&server, "heads", CONNECTIONS * head.len(), async |raw| {
        let mut open = Vec::new();
        for _ in 0..CONNECTIONS {
            let mut connection = raw.connect().await;
            connection.write_all(head.as_bytes()).await.unwrap();
            connection.flush().await.unwrap();
            open.push(connection);
        }
        // The server has read all headers when it answers the last one.
        let mut last = raw.connect().await;
        last.write_all(b"GET /livez HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        last.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        drop(open);
    })
    .await;
}
