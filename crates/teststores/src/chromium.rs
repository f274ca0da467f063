//! A headless Chromium, through its WebDriver program.
//!
//! The driver listens on a port of the loopback address. Its processes are in a process group and directory of their
//! own. Both are removed when the handle is dropped or the test process ends.

use std::net::TcpStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};

use crate::guard::{GuardedServer, free_port, with_libraries};
use crate::named_by;

/// Names the browser.
const BROWSER: &str = "KEELSON_CHROMIUM";
/// Names its driver.
const DRIVER: &str = "KEELSON_CHROMEDRIVER";
/// The most attempts to start: another process may take a port that was free.
const TRIES: usize = 5;

/// A running driver without a browser so far.
#[derive(Debug)]
pub struct ChromeDriver {
    guarded: GuardedServer,
    browser: PathBuf,
    port: u16,
}

impl ChromeDriver {
    /// Starts the driver and waits until it listens. `None` where this machine has no browser.
    ///
    /// # Panics
    /// When the browser does not start; the text ends with its log.
    pub fn start() -> Option<Self> {
        let (browser, driver) = (named_by(BROWSER)?, named_by(DRIVER)?);
        let mut failure = String::new();
        for _ in 0..TRIES {
            match Self::try_start(browser.clone(), &driver) {
                Ok(started) => return Some(started),
                Err(text) => failure = text,
            }
        }
        panic!("{failure}");
    }

    fn try_start(browser: PathBuf, driver: &Path) -> Result<Self, String> {
        let (mut guarded, port) = (GuardedServer::new("TERM"), free_port());
        // An unpacked driver uses the libraries of its browser.
        let mut command = with_libraries(driver);
        command.arg(format!("--port={port}")).process_group(0);
        // The browser looks for these, and no test needs them.
        command.env("HOME", guarded.directory()).env_remove("DBUS_SESSION_BUS_ADDRESS");
        guarded.start(&mut command, || TcpStream::connect(("127.0.0.1", port)).is_ok())?;
        Ok(Self { guarded, browser, port })
    }

    /// The port.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The path of the browser for the driver.
    pub fn browser(&self) -> &Path {
        &self.browser
    }

    /// A directory that is removed with the driver.
    pub fn directory(&self) -> &Path {
        self.guarded.directory()
    }
}
