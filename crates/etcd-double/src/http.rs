//! The answers of the stand-in, over HTTP/1.1, one for each connection.
//!
//! A client that sends no request loses its connection after a while, and the number of connections at once has a limit.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The longest wait for a request and for each write of its answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The largest head of a request, in bytes.
const HEAD_BYTES: usize = 16 * 1024;
/// The number of connections that are served at once; more are closed.
const CONNECTIONS: usize = 64;
/// The pause after a connection could not be accepted.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// The answers by path.
pub(crate) struct Answers {
    version: String,
    connections: AtomicUsize,
}

impl Answers {
    pub(crate) fn new(directory: &Path) -> Self {
        let (version, field) = (super::ETCD_VERSION, super::DIRECTORY_FIELD);
        let directory = escaped(&directory.to_string_lossy());
        let version = format!(
            "{{\"etcdserver\":\"{version}\",\"etcdcluster\":\"{version}\",\"storage\":\"{version}\",\"{field}\":\"{directory}\"}}"
        );
        Self { version, connections: AtomicUsize::new(0) }
    }

    /// The code, the type and the body for a path.
    fn route(&self, path: &str) -> (&'static str, &'static str, &str) {
        const JSON: &str = "application/json";
        const TEXT: &str = "text/plain; charset=utf-8";
        match path {
            "/health" => ("200 OK", JSON, r#"{"health":"true","reason":""}"#),
            "/version" => ("200 OK", JSON, &self.version),
            "/livez" | "/readyz" => ("200 OK", TEXT, "ok\n"),
            _ => ("404 Not Found", TEXT, "404 page not found\n"),
        }
    }

    fn answer(&self, mut stream: TcpStream) -> std::io::Result<()> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let Some(head) = read_head(&mut stream)? else { return Ok(()) };
        let mut words = head.split(' ');
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let path = target.split('?').next().unwrap_or_default();
        let (status, kind, body) = match method {
            "GET" | "HEAD" => self.route(path),
            _ => ("405 Method Not Allowed", "text/plain; charset=utf-8", "Method Not Allowed\n"),
        };
        let head = format!(
            "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
            body.len()
        );
        let body = if method == "HEAD" { "" } else { body };
        stream.write_all(format!("{head}{body}").as_bytes())
    }
}

/// Accepts connections for ever.
pub(crate) fn serve(listener: &TcpListener, answers: &Arc<Answers>) {
    for accepted in listener.incoming() {
        let Ok(stream) = accepted else {
            std::thread::sleep(ACCEPT_RETRY);
            continue;
        };
        if answers.connections.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS {
            answers.connections.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let answers = answers.clone();
        std::thread::spawn(move || {
            // The client has gone, or sends no HTTP.
            let _ = answers.answer(stream);
            answers.connections.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

/// Closes the connections of peers, of which there are none.
pub(crate) fn refuse(listener: &TcpListener) {
    for accepted in listener.incoming() {
        if accepted.is_err() {
            std::thread::sleep(ACCEPT_RETRY);
        }
    }
}

/// Escapes a string for JSON.
pub(crate) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' => escaped.push_str("\\\""),
            '\\' => escaped.push_str("\\\\"),
            c if c.is_control() => escaped.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => escaped.push(c),
        }
    }
    escaped
}

/// The first line of a request, once its head is whole; `None` for a client that sends none.
fn read_head(stream: &mut TcpStream) -> std::io::Result<Option<String>> {
    let mut head = Vec::new();
    let mut chunk = [0; 1024];
    while !head.windows(4).any(|four| four == b"\r\n\r\n") {
        let count = stream.read(&mut chunk)?;
        if count == 0 || head.len() + count > HEAD_BYTES {
            return Ok(None);
        }
        head.extend_from_slice(&chunk[..count]);
    }
    let text = String::from_utf8_lossy(&head);
    Ok(text.lines().next().map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{SocketAddr, TcpStream};

    use crate::{Double, Endpoint, Settings};

    fn ask(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn health_and_version_are_answered_and_the_directory_is_named() {
        let directory = std::env::temp_dir().join(format!("etcd-double-{}", std::process::id()));
        let data_dir = directory.join("da\"ta");
        let urls = |port| vec![Endpoint { host: "127.0.0.1".to_owned(), port }];
        let settings =
            Settings { data_dir: data_dir.clone(), client_urls: urls(0), peer_urls: urls(0), exit_with_parent: None };
        let double = Double::open(&settings).unwrap();
        let address = double.addresses()[0];
        let taken = Settings { client_urls: urls(address.port()), ..settings };
        assert!(Double::open(&taken).is_err_and(|error| error.contains("bind")), "the port is taken");
        std::thread::spawn(|| double.serve());
        let get = |path: &str| ask(address, &format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n"));
        assert!(get("/health").ends_with("\r\n\r\n{\"health\":\"true\",\"reason\":\"\"}"));
        assert!(get("/health?serializable=true").starts_with("HTTP/1.1 200 OK\r\n"));
        assert!(get("/readyz").ends_with("ok\n"));
        let version = get("/version");
        assert!(version.contains("\"etcdserver\":\"3.") && version.contains("da\\\"ta/keelson\"}"), "{version}");
        assert!(get("/v2/keys").starts_with("HTTP/1.1 404 "));
        assert!(ask(address, "POST /health HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 "));
        assert!(data_dir.is_dir());
        std::fs::remove_dir_all(directory).unwrap();
    }
}
