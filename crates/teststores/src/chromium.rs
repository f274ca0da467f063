//! A headless Chromium, by the program that drives it for others.
//!
//! The driver speaks WebDriver on a port of the loopback address, and what it starts lives in a directory of its own and in its group of
//! processes: both are gone when the handle is dropped or the test process ends.

use std::net::TcpStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};

use crate::guard::{Guarded, free_port, with_libraries};
use crate::named_by;

/// Names the browser.
const BROWSER: &str = "KEELSON_CHROMIUM";
/// Names its driver.
const DRIVER: &str = "KEELSON_CHROMEDRIVER";
/// How often a start is tried: another process may take a port that was free.
const TRIES: usize = 5;

/// A running driver, which has started no browser yet.
#[derive(Debug)]
pub struct ChromeDriver {
    guarded: Guarded,
    browser: PathBuf,
    port: u16,
}

impl ChromeDriver {
    /// Starts it and waits until it listens. None where this machine can't have a browser.
    ///
    /// # Panics
    /// When it does not start; the text ends with what it logged.
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
        let (mut guarded, port) = (Guarded::new("TERM"), free_port());
        // The libraries of an unpacked driver are those of its browser.
        let mut command = with_libraries(driver);
        command.arg(format!("--port={port}")).process_group(0);
        // Looked for by the browser, and asked by nobody.
        command.env("HOME", guarded.directory()).env_remove("DBUS_SESSION_BUS_ADDRESS");
        guarded.start(&mut command, || TcpStream::connect(("127.0.0.1", port)).is_ok())?;
        Ok(Self { guarded, browser, port })
    }

    /// Where it listens.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The browser that it is to start.
    pub fn browser(&self) -> &Path {
        &self.browser
    }

    /// A directory that goes with it.
    pub fn directory(&self) -> &Path {
        self.guarded.directory()
    }
}
