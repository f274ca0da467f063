//! Memory that a process takes for what one client sends: at most twenty times the bytes, whatever they are.
//!
//! What the parsers of bodies hold is counted byte by byte elsewhere (`crates/fuzz/tests/memory.rs`). Here it is what the system gave to
//! the process while it answered, with all that a request takes besides.

use http::Method;
use keelson_testkit::{ProcessServer, Raw};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const KEELSON: &str = env!("CARGO_BIN_EXE_keelson");
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// A resource whose objects may hold anything.
const REVISIONS: &str = "/apis/apps/v1/namespaces/default/controllerrevisions";

/// How many bytes may be taken for each byte that was sent.
const TAKEN_PER_BYTE: u64 = 20;
/// How many bytes more the process may take besides: threads that work for the first time, and what the allocator keeps of what was
/// freed. A few MB are seen.
const BESIDES: u64 = 16 * 1024 * 1024;
/// As large as a body may be.
const BODY_BYTES: usize = 3 * 1024 * 1024 - 1024;

/// What the process holds now, and the most that it held since it was last asked, in bytes.
fn held(server: &ProcessServer) -> (u64, u64) {
    let process = format!("/proc/{}", server.pid().unwrap());
    let status = std::fs::read_to_string(format!("{process}/status")).unwrap();
    let of = |name: &str| -> u64 {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    };
    // This begins a new count of the most.
    std::fs::write(format!("{process}/clear_refs"), "5").unwrap();
    (of("VmRSS:"), of("VmHWM:"))
}

/// What is sent must not cost more than it may.
async fn check(server: &ProcessServer, what: &str, sent: usize, send: impl AsyncFnOnce(Raw)) {
    let (before, _) = held(server);
    send(server.raw()).await;
    let (_, most) = held(server);
    let taken = most.saturating_sub(before);
    let bound = TAKEN_PER_BYTE * sent as u64 + BESIDES;
    assert!(taken <= bound, "{what}: {taken} bytes were taken for {sent}, {bound} may be");
}

async fn server() -> ProcessServer {
    let server = ProcessServer::builder(KEELSON).start().await;
    // What is made when it is first needed is no request's doing.
    let raw = server.raw();
    raw.post(CONFIG_MAPS, &json!({"metadata": {"generateName": "a-"}})).await.expect(201);
    raw.get(CONFIG_MAPS).await.expect(200);
    server
}

/// An object around this text.
fn revision(data: &str) -> String {
    format!(
        r#"{{"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": {{"generateName": "a-"}}, "revision": 1, "data": {data}}}"#
    )
}

fn repeated(length: usize, part: &str) -> Vec<u8> {
    part.repeat(length / part.len()).into_bytes()
}

/// Posts a body to a process in which nothing large was read before: what an allocator keeps of one body serves the next.
async fn check_body(what: &str, path: &str, kind: &str, body: Vec<u8>) {
    let server = server().await;
    check(&server, what, body.len(), async |raw| {
        let answer = raw.call(Method::POST, path).header("content-type", kind).body(body.clone()).await;
        // What is too large for the store is refused when it has been read; some of it takes less room there.
        assert!([201, 400, 413, 422, 500].contains(&answer.status), "{what}: {}", answer.status);
    })
    .await;
}

/// What each element costs that is held is many times its text, and most of the memory is that of the array that has to grow for it.
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

/// Volumes of a pod, of which none says anything.
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

/// Each on a connection of its own that sends most of a head, and waits.
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
        // The last one is read when the server answers it.
        let mut last = raw.connect().await;
        last.write_all(b"GET /livez HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        last.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        drop(open);
    })
    .await;
}
