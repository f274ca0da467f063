//! A thread with its own runtime, for work that must not depend on the runtime of a test.
//!
//! The thread starts with the first task and ends with its owner. Unfinished tasks are then dropped.

use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::error::Error;

/// A thread that runs tasks.
#[derive(Debug, Default)]
pub(crate) struct Background(Mutex<Option<Running>>);

#[derive(Debug)]
struct Running {
    handle: Handle,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    /// The runtime of the thread.
    pub(crate) fn handle(&self) -> Result<Handle, Error> {
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = &*running {
            return Ok(running.handle.clone());
        }
        let started = Running::start().map_err(Error::io("starting a thread"))?;
        let handle = started.handle.clone();
        *running = Some(started);
        Ok(handle)
    }
}

impl Running {
    fn start() -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel();
        let thread = std::thread::Builder::new().name("keelson-test".to_owned()).spawn(move || {
            // Ends when a message arrives or the sender is dropped.
            let _ = runtime.block_on(ended);
            runtime.shutdown_background();
        })?;
        Ok(Self { handle, end: Some(end), thread: Some(thread) })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // An error means that the thread panicked; it has ended in either case.
            let _ = thread.join();
        }
    }
}
