//! The store behind `--etcd-servers`: a real etcd, or the directory that keelson's stand-in for etcd lends.
//!
//! The stand-in names the directory in its answer to `/version`, so that an API server that is started again finds its objects.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs as _};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use keelson_etcd_double::DIRECTORY_FIELD;
use serde_json::Value;

/// The longest time for one request, in which a stand-in always answers.
const PATIENCE: Duration = Duration::from_secs(2);
/// The longest wait for an etcd that was started at the same time.
const START: Duration = Duration::from_secs(5);
/// The pause between two attempts to reach it.
const RETRY: Duration = Duration::from_millis(20);
/// The most bytes of an answer.
const ANSWER_BYTES: u64 = 64 * 1024;

/// The place of objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stores {
    /// In etcd.
    Etcd,
    /// In a store of keelson's in this directory.
    Lent(PathBuf),
}

impl Stores {
    /// Finds out what listens at the URLs. Only one on this host can be a stand-in.
    pub(super) fn at(urls: &[&str]) -> Self {
        let [url] = urls else { return Self::Etcd };
        let Some(place) = url.strip_prefix("http://").map(|place| place.trim_end_matches('/')) else {
            return Self::Etcd;
        };
        let Some(address) = loopback(place) else { return Self::Etcd };
        match version(address) {
            Some(version) => lent(&version).map_or(Self::Etcd, Self::Lent),
            None => Self::Etcd,
        }
    }
}

/// The directory that a stand-in names.
fn lent(version: &Value) -> Option<PathBuf> {
    let directory = version.get(DIRECTORY_FIELD)?.as_str()?;
    Some(PathBuf::from(directory)).filter(|directory| directory.is_absolute())
}

fn loopback(place: &str) -> Option<SocketAddr> {
    let is_loopback = |address: &SocketAddr| match address.ip() {
        IpAddr::V4(address) => address.is_loopback(),
        IpAddr::V6(address) => address.is_loopback(),
    };
    place.to_socket_addrs().ok()?.find(is_loopback)
}

/// The answer to `/version`; `None` where it is none, as from an etcd with TLS.
fn version(address: SocketAddr) -> Option<Value> {
    let begun = Instant::now();
    let mut stream = loop {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => break stream,
            Err(error) if error.kind() == ErrorKind::ConnectionRefused && begun.elapsed() < START => {
                std::thread::sleep(RETRY);
            }
            Err(_) => return None,
        }
    };
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    stream.set_write_timeout(Some(PATIENCE)).ok()?;
    let request = format!("GET /version HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.take(ANSWER_BYTES).read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.starts_with("HTTP/1.1 200 ").then(|| serde_json::from_str(body).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_a_directory_that_is_named_is_lent() {
        assert_eq!(lent(&json!({"etcdserver": "3.6.6", "keelsonDirectory": "/t/a"})), Some("/t/a".into()));
        for other in [json!({"etcdserver": "3.6.6"}), json!({"keelsonDirectory": "t/a"}), json!([]), json!(null)] {
            assert_eq!(lent(&other), None, "{other}");
        }
    }

    #[test]
    fn only_one_server_of_this_host_is_asked() {
        for urls in
            [&["http://127.0.0.1:1", "http://127.0.0.1:2"][..], &["https://127.0.0.1:1"], &["http://192.0.2.1:1"], &[]]
        {
            assert_eq!(Stores::at(urls), Stores::Etcd, "{urls:?}");
        }
    }
}
