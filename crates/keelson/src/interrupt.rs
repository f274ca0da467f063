//! Ends a long command in order at SIGINT or SIGTERM, so that it removes its incomplete files first.
//!
//! A second signal ends the process at once.

use std::fmt;

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// The exit code of a process that a signal ends, without the number of the signal, as shells report it.
const SIGNAL_CODE: u8 = 128;

/// The error of an interrupted command, with the state that it leaves.
#[derive(Debug)]
pub(crate) struct Interrupted {
    signal: u8,
    leaves: &'static str,
}

impl Interrupted {
    /// The exit code: 130 after SIGINT, 143 after SIGTERM.
    pub(crate) const fn code(&self) -> u8 {
        SIGNAL_CODE + self.signal
    }
}

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "interrupted: {}", self.leaves)
    }
}

impl std::error::Error for Interrupted {}

/// The first signal that the process has received.
#[derive(Clone)]
pub(crate) struct Interrupt {
    /// The number of the signal; 0 before it.
    first: watch::Receiver<u8>,
    leaves: &'static str,
}

impl Interrupt {
    /// Listens for signals from now on, on a thread that ends with the process. `leaves` is the state that an
    /// interrupted command leaves, for the user.
    pub(crate) fn listen(leaves: &'static str) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
        let runtime = runtime.context("starting a runtime for signals")?;
        let (sender, first) = watch::channel(0);
        let mut signals = {
            let _entered = runtime.enter();
            let terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
            (signal(SignalKind::interrupt()).context("listening for SIGINT")?, terminate)
        };
        let listen = async move {
            loop {
                let kind = tokio::select! {
                    _ = signals.0.recv() => SignalKind::interrupt(),
                    _ = signals.1.recv() => SignalKind::terminate(),
                };
                let number = u8::try_from(kind.as_raw_value()).unwrap_or_default();
                if *sender.borrow() > 0 {
                    std::process::exit((SIGNAL_CODE + number).into());
                }
                // The command may have ended meanwhile.
                let _ = sender.send(number);
            }
        };
        let thread = std::thread::Builder::new().name("signals".to_owned());
        thread.spawn(move || runtime.block_on(listen)).context("starting a thread for signals")?;
        Ok(Self { first, leaves })
    }

    /// Returns true after a signal.
    pub(crate) fn is_received(&self) -> bool {
        *self.first.borrow() > 0
    }

    /// The result of an interrupted command in place of the error that its end caused.
    pub(crate) fn over<T>(&self, done: anyhow::Result<T>) -> anyhow::Result<T> {
        match done {
            Err(_) if self.is_received() => Err(self.error().into()),
            done => done,
        }
    }

    /// Runs a future until it is complete or a signal arrives.
    ///
    /// # Errors
    /// [`Interrupted`], or the error of the future.
    pub(crate) async fn or<T>(&self, work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
        let mut first = self.first.clone();
        tokio::select! {
            done = work => done,
            _ = first.wait_for(|signal| *signal > 0) => Err(self.error().into()),
        }
    }

    fn error(&self) -> Interrupted {
        Interrupted { signal: *self.first.borrow(), leaves: self.leaves }
    }
}
