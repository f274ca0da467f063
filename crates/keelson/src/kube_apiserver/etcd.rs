//! The store behind `--etcd-servers`: a real etcd, or the directory that keelson's stand-in for etcd provides.
//!
//! The stand-in returns the directory in its response to `/version`, so a restarted API server finds its objects.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs as _};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use keelson_etcd_double::DIRECTORY_FIELD;
use serde_json::Value;

/// The timeout of one request. A stand-in always answers within it.
const PATIENCE: Duration = Duration::from_secs(2);
/// The longest wait for an etcd that starts at the same time.
const START: Duration = Duration::from_secs(5);
/// The pause between two attempts to connect.
const RETRY: Duration = Duration::from_millis(20);
/// The largest response in bytes.
const ANSWER_BYTES: u64 = 64 * 1024;

/// The store of the objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stores {
    /// In etcd.
    Etcd,
    /// A SQLite store of keelson in this directory, which the stand-in provides.
    Lent(PathBuf),
}

impl Stores {
    /// Finds the store behind the URLs. Only a process on this host can be the stand-in.
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

/// The directory in the stand-in's response.
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

/// The response to `/version`; `None` if it is not valid, for example from an etcd with TLS.
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
    fn only_one_server_of_this_host_is_called() {
        for urls in
            [&["http://127.0.0.1:1", "http://127.0.0.1:2"][..], &["https://127.0.0.1:1"], &["http://192.0.2.1:1"], &[]]
        {
            assert_eq!(Stores::at(urls), Stores::Etcd, "{urls:?}");
        }
    }
}
