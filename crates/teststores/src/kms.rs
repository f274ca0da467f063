//! A key service (KMS) for tests: both versions of the API over a Unix socket. Tests control its keys, responses and
//! failures.
//!
//! The service does not encrypt: it flips some bits of each byte, so that a test can distinguish the result from the
//! plain value. Messages are encoded without the code of the server under test.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use h2::server::SendResponse;
use http::{HeaderMap, Request, Response};
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;

/// The prefix of every encrypted data key.
const SEALED: &[u8] = b"sealed:";

/// A key service that runs until it is stopped or dropped.
pub struct KmsDouble {
    directory: TempDir,
    state: Arc<State>,
    running: Mutex<Option<Running>>,
}

/// Dropping it ends its connections.
struct Running(tokio::task::JoinHandle<()>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct State {
    key_id: Mutex<String>,
    /// The field `healthz` of a status.
    healthz: Mutex<String>,
    version: Mutex<String>,
    /// The IDs of lost keys. The service fails to decrypt values under them.
    lost: Mutex<HashSet<String>>,
    delay: Mutex<Duration>,
    statuses: AtomicUsize,
    encryptions: AtomicUsize,
    decryptions: AtomicUsize,
}

impl KmsDouble {
    /// Starts a service whose key has this ID.
    ///
    /// # Panics
    /// When there is no room for its socket.
    pub fn start(key_id: &str) -> Self {
        let directory = TempDir::new().expect("a temporary directory can be made");
        let state = State {
            key_id: Mutex::new(key_id.to_owned()),
            healthz: Mutex::new("ok".to_owned()),
            version: Mutex::new("v2".to_owned()),
            lost: Mutex::default(),
            delay: Mutex::default(),
            statuses: AtomicUsize::new(0),
            encryptions: AtomicUsize::new(0),
            decryptions: AtomicUsize::new(0),
        };
        let double = Self { directory, state: Arc::new(state), running: Mutex::new(None) };
        double.resume();
        double
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("kms.sock")
    }

    /// The endpoint in a configuration.
    pub fn endpoint(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// Ends the service and all connections. The socket file stays, without a listener.
    pub fn die(&self) {
        *self.running.lock() = None;
    }

    /// Starts it again.
    ///
    /// # Panics
    /// When the socket can't be made.
    pub fn resume(&self) {
        let socket = self.socket();
        remove(&socket);
        let listener = UnixListener::bind(&socket).expect("the socket can be made");
        let task = tokio::spawn(serve(listener, self.state.clone()));
        *self.running.lock() = Some(Running(task));
    }

    /// Has it encrypt with another key.
    pub fn rotate(&self, key_id: &str) {
        key_id.clone_into(&mut self.state.key_id.lock());
    }

    /// Loses a key: decrypting with it fails from now on.
    pub fn lose(&self, key_id: &str) {
        self.state.lost.lock().insert(key_id.to_owned());
    }

    /// Sets the health text of the status instead of `ok`.
    pub fn ail(&self, healthz: &str) {
        healthz.clone_into(&mut self.state.healthz.lock());
    }

    /// Has it wait before each answer.
    pub fn delay(&self, delay: Duration) {
        *self.state.delay.lock() = delay;
    }

    /// The number of calls so far: status, encrypt, and decrypt.
    pub fn calls(&self) -> [usize; 3] {
        let State { statuses, encryptions, decryptions, .. } = &*self.state;
        [statuses, encryptions, decryptions].map(|count| count.load(Ordering::Relaxed))
    }
}

fn remove(socket: &Path) {
    if let Err(error) = std::fs::remove_file(socket) {
        assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "the socket is in the way");
    }
}

async fn serve(listener: UnixListener, state: Arc<State>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(converse(stream, state.clone()));
    }
}

async fn converse(stream: UnixStream, state: Arc<State>) {
    let Ok(mut connection) = h2::server::handshake(stream).await else { return };
    let mut answers = JoinSet::new();
    while let Some(Ok((request, respond))) = connection.accept().await {
        answers.spawn(answer(request, respond, state.clone()));
    }
}

async fn answer(request: Request<h2::RecvStream>, mut respond: SendResponse<Bytes>, state: Arc<State>) {
    let path = request.uri().path().to_owned();
    let mut body = request.into_body();
    let mut message = BytesMut::new();
    while let Some(Ok(part)) = body.data().await {
        let _released = body.flow_control().release_capacity(part.len());
        message.extend_from_slice(&part);
    }
    let delay = *state.delay.lock();
    tokio::time::sleep(delay).await;
    message.advance(5.min(message.len()));
    let outcome = state.outcome(&path, &fields(&message));
    let head = Response::builder().header("content-type", "application/grpc").body(()).expect("a valid head");
    let Ok(mut stream) = respond.send_response(head, false) else { return };
    let mut trailers = HeaderMap::new();
    match outcome {
        Ok(message) => {
            let mut frame = BytesMut::new();
            frame.put_u8(0);
            frame.put_u32(u32::try_from(message.len()).expect("a small message"));
            frame.extend_from_slice(&message);
            // A disconnected client gets no response.
            let _sent = stream.send_data(frame.freeze(), false);
            trailers.insert("grpc-status", http::HeaderValue::from_static("0"));
        }
        Err(why) => {
            trailers.insert("grpc-status", http::HeaderValue::from_static("2"));
            trailers.insert("grpc-message", why.parse().expect("a valid text"));
        }
    }
    let _sent = stream.send_trailers(trailers);
}

impl State {
    fn outcome(&self, path: &str, request: &BTreeMap<u64, Vec<u8>>) -> Result<Vec<u8>, String> {
        let of = |number: u64| request.get(&number).cloned().unwrap_or_default();
        let key_id = self.key_id.lock().clone();
        match path {
            "/v2.KeyManagementService/Status" => {
                self.statuses.fetch_add(1, Ordering::Relaxed);
                let (version, healthz) = (self.version.lock().clone(), self.healthz.lock().clone());
                Ok([field(1, version.as_bytes()), field(2, healthz.as_bytes()), field(3, key_id.as_bytes())].concat())
            }
            "/v2.KeyManagementService/Encrypt" => {
                self.encryptions.fetch_add(1, Ordering::Relaxed);
                let annotation = [field(1, b"a.example.org"), field(2, b"note")].concat();
                Ok([field(1, &turned(&of(1))), field(2, key_id.as_bytes()), field(3, &annotation)].concat())
            }
            "/v2.KeyManagementService/Decrypt" => {
                self.decryptions.fetch_add(1, Ordering::Relaxed);
                let used = String::from_utf8_lossy(&of(3)).into_owned();
                if self.lost.lock().contains(&used) {
                    return Err(format!("there is no key {used}"));
                }
                opened(&of(1)).map(|plain| field(1, &plain))
            }
            "/v1beta1.KeyManagementService/Version" => Ok(field(1, b"v1beta1")),
            "/v1beta1.KeyManagementService/Encrypt" => {
                self.encryptions.fetch_add(1, Ordering::Relaxed);
                Ok(field(1, &turned(&of(2))))
            }
            "/v1beta1.KeyManagementService/Decrypt" => {
                self.decryptions.fetch_add(1, Ordering::Relaxed);
                opened(&of(2)).map(|plain| field(1, &plain))
            }
            other => Err(format!("there is no {other}")),
        }
    }
}

fn turned(plain: &[u8]) -> Vec<u8> {
    SEALED.iter().copied().chain(plain.iter().map(|byte| byte ^ 0x5a)).collect()
}

fn opened(sealed: &[u8]) -> Result<Vec<u8>, String> {
    let plain = sealed.strip_prefix(SEALED).ok_or_else(|| "this was not encrypted here".to_owned())?;
    Ok(plain.iter().map(|byte| byte ^ 0x5a).collect())
}

/// The texts and bytes of a message, by number.
fn fields(message: &[u8]) -> BTreeMap<u64, Vec<u8>> {
    let (mut rest, mut found) = (message, BTreeMap::new());
    while !rest.is_empty() {
        let (Some(tag), Some(length)) = (varint(&mut rest), varint(&mut rest)) else { break };
        let Some((value, behind)) = rest.split_at_checked(usize::try_from(length).unwrap_or(usize::MAX)) else { break };
        found.insert(tag >> 3, value.to_vec());
        rest = behind;
    }
    found
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for place in 0..10 {
        let (byte, behind) = rest.split_first()?;
        *rest = behind;
        number |= u64::from(byte & 127) << (7 * place);
        if byte & 128 == 0 {
            return Some(number);
        }
    }
    None
}

fn field(number: u8, value: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    let mut length = value.len();
    while length >= 128 {
        out.push((length & 127) as u8 | 128);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend_from_slice(value);
    out
}
