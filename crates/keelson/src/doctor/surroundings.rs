//! The checks outside of the data directory: the port, the health of a running server, the clock, and the limit of open
//! files.
//!
//! The health of a running server comes from its health checks. If no server runs, the check tries to listen on its
//! port.

use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use rustix::process::{Resource, getrlimit};

use super::{Finding, Place, shown};

/// The timeout of a request to the running server.
const PATIENCE: Duration = Duration::from_secs(5);
/// The fewest files that a server should be able to open.
const LEAST_FILES: u64 = 4096;
/// A moment before this program was written, 2026-01-01, in Unix seconds. An earlier clock is wrong.
const EARLIEST: u64 = 1_767_225_600;
/// The largest time by which a certificate's start may be ahead of the clock.
const SKEW: Duration = Duration::from_secs(60);

pub(super) fn check(place: &Place, bind: SocketAddr) -> Vec<Finding> {
    let mut findings = vec![if place.is_in_use { server(place) } else { port(bind) }];
    findings.push(clock(place));
    findings.push(files());
    findings
}

/// Checks that the port is free.
fn port(bind: SocketAddr) -> Finding {
    match TcpListener::bind(bind) {
        Ok(_) => Finding::ok("port", format!("{bind} is free")),
        Err(error) => {
            let way_out = match error.kind() {
                std::io::ErrorKind::AddrInUse => {
                    format!("find its owner with ss -ltnp 'sport = :{}', or choose another with --bind", bind.port())
                }
                std::io::ErrorKind::PermissionDenied => "choose a port from 1024 on with --bind".to_owned(),
                std::io::ErrorKind::AddrNotAvailable => "choose an address of this host with --bind".to_owned(),
                _ => "choose another address with --bind".to_owned(),
            };
            Finding::failed("port", format!("{bind} can't be listened on: {error}"), way_out)
        }
    }
}

/// Checks the health of the server that runs on the directory.
fn server(place: &Place) -> Finding {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting a runtime");
    let asked =
        runtime.and_then(|runtime| runtime.block_on(async { tokio::time::timeout(PATIENCE, health(place)).await? }));
    match asked {
        Ok(text) if !text.lines().any(|line| line.starts_with("[-]")) => {
            Finding::ok("server", "the running server is ready")
        }
        Ok(text) => {
            let failing: Vec<_> = text.lines().filter(|line| line.starts_with("[-]")).collect();
            Finding::failed(
                "server",
                format!("the running server is not ready: {}", failing.join("; ")),
                "its log says more about each check",
            )
        }
        Err(error) => Finding::failed(
            "server",
            format!("a server holds {} and does not answer: {error:#}", shown(&place.directory)),
            "look at its log; end it with SIGTERM, and start it again",
        ),
    }
}

async fn health(place: &Place) -> anyhow::Result<String> {
    let read = Kubeconfig::read_from(place.kubeconfig()).context("reading the kubeconfig")?;
    let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
    let client = Client::try_from(config)?;
    let request = http::Request::builder().uri("/readyz?verbose").body(Vec::new())?;
    match client.request_text(request).await {
        Ok(text) => Ok(text),
        // A server that is not ready answers with an error whose message is the list of checks.
        Err(kube::Error::Api(status)) if status.message.contains("[-]") || status.code == 500 => Ok(status.message),
        Err(error) => Err(error.into()),
    }
}

/// Checks the clock against the age of this program and the certificates in the directory.
fn clock(place: &Place) -> Finding {
    let now = SystemTime::now();
    let way_out = "set the clock, for example with timedatectl set-ntp true";
    if now < UNIX_EPOCH + Duration::from_secs(EARLIEST) {
        return Finding::failed("clock", "it stands before 2026", way_out);
    }
    let keys = std::fs::read_dir(place.keys()).into_iter().flatten().filter_map(Result::ok);
    let begins =
        keys.filter_map(|entry| keelson_server::certificate_begin(&std::fs::read_to_string(entry.path()).ok()?));
    match begins.max() {
        Some(begin) if begin > now + SKEW => {
            let seconds = begin.duration_since(now).unwrap_or_default().as_secs();
            Finding::failed(
                "clock",
                format!("a certificate begins {seconds} s from now, so the clock is behind"),
                way_out,
            )
        }
        _ => Finding::ok("clock", "it agrees with the certificates"),
    }
}

fn files() -> Finding {
    match getrlimit(Resource::Nofile).maximum {
        Some(most) if most < LEAST_FILES => Finding::warning(
            "open files",
            format!("the hard limit is {most}, which leaves room for few connections"),
            format!("raise it to {LEAST_FILES} or more: LimitNOFILE= in the unit, or ulimit -Hn"),
        ),
        Some(most) => Finding::ok("open files", format!("the hard limit is {most}")),
        None => Finding::ok("open files", "there is no limit"),
    }
}
