//! Waits for the end of the process that started the server, as a reason to stop.
//!
//! A descriptor of the process (pidfd) becomes readable when the whole process has ended, also after kill -9. The
//! kernel's signal for this (`PR_SET_PDEATHSIG`) comes when the *thread* that started the child ends. Runtimes of Go,
//! Node.js and Rust start children on threads that end early.

use std::os::fd::OwnedFd;

use anyhow::{Context as _, bail};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, getppid, pidfd_open};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::args::WatchedProcess;

/// A process whose end the server waits for.
pub(crate) enum Parent {
    /// No process is watched.
    Unwatched,
    /// The process has already ended.
    Ended,
    /// The process ran when its descriptor was opened.
    Running(AsyncFd<OwnedFd>),
}

impl Parent {
    /// Opens a descriptor of the process.
    ///
    /// # Errors
    /// When the kernel returns no descriptor.
    pub(crate) fn from_watched(watched: Option<WatchedProcess>) -> anyhow::Result<Self> {
        let pid = match watched {
            None | Some(WatchedProcess::Nothing) => return Ok(Self::Unwatched),
            // The first process of a container has no parent.
            Some(WatchedProcess::Parent) => match getppid() {
                Some(parent) => parent,
                None => return Ok(Self::Unwatched),
            },
            Some(WatchedProcess::Pid(pid)) => match Pid::from_raw(pid) {
                Some(pid) => pid,
                None => bail!("{pid} is not the PID of a process"),
            },
        };
        let descriptor = match pidfd_open(pid, PidfdFlags::NONBLOCK) {
            Ok(descriptor) => descriptor,
            Err(Errno::SRCH) => return Ok(Self::Ended),
            Err(error) => return Err(error).context("watching the parent process"),
        };
        // ORDER: after the descriptor is open. A PID that is the parent's before and after was the parent's in between.
        if watched == Some(WatchedProcess::Parent) && getppid() != Some(pid) {
            return Ok(Self::Ended);
        }
        registered(descriptor).map(Self::Running).context("watching the parent process")
    }

    /// Waits until the process has ended; never returns if no process is watched.
    pub(crate) async fn ended(&self) {
        match self {
            Self::Unwatched => std::future::pending().await,
            Self::Ended => {}
            Self::Running(descriptor) => {
                if let Err(error) = descriptor.readable().await {
                    tracing::error!(%error, "the parent process can't be watched any more");
                    std::future::pending::<()>().await;
                }
            }
        }
    }
}

#[expect(
    deprecated,
    reason = "its replacement is unsafe for types that may give their descriptor up; this one owns it"
)]
fn registered(descriptor: OwnedFd) -> std::io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(descriptor, Interest::READABLE)
}
