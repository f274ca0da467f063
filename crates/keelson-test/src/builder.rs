//! The settings of a server before its start.
//!
//! They have the same meaning in both forms of a server. A setting that only one form supports says so.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use crate::error::Error;
use crate::keelson::Keelson;

/// The environment variable with the path of a `keelson` binary. If it is set, the server is a child process.
const BINARY: &str = "KEELSON_BIN";

/// The form of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Form {
    /// A server in the process of the test, on its own threads.
    #[cfg(feature = "embedded")]
    Embedded,
    /// A child process that runs this program.
    #[cfg(feature = "process")]
    Process(PathBuf),
}

/// Settings of a server.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    form: Option<Form>,
    pub(crate) controllers: Option<String>,
    pub(crate) history: Option<Duration>,
    pub(crate) args: Vec<OsString>,
}

impl Builder {
    /// Chooses the form. By default it is the binary of `KEELSON_BIN` if that is set, which needs the feature
    /// `process`. Otherwise it is a server in this process (feature `embedded`), or else the `keelson` on the path.
    #[must_use]
    pub fn form(mut self, form: Form) -> Self {
        self.form = Some(form);
        self
    }

    /// Sets the controllers that run, in the form of `--controllers`: `*`, names, and `-name` to exclude one. By
    /// default all run. With an empty text none runs, as in envtest.
    #[must_use]
    pub fn controllers(mut self, controllers: &str) -> Self {
        self.controllers = Some(controllers.to_owned());
        self
    }

    /// Sets the time for which earlier states can be read, so that watches resume and lists continue. The default is 5
    /// minutes.
    #[must_use]
    pub fn history(mut self, history: Duration) -> Self {
        self.history = Some(history);
        self
    }

    /// Adds an argument of `keelson serve`. A server in this process rejects it.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// Starts the server and waits until it is ready.
    ///
    /// # Errors
    /// [`Error::Start`], with the reason.
    pub async fn start(self) -> Result<Keelson, Error> {
        match self.chosen_form()? {
            #[cfg(feature = "embedded")]
            Form::Embedded => Keelson::embedded(&self).await,
            #[cfg(feature = "process")]
            Form::Process(binary) => Keelson::process(&self, &binary).await,
        }
    }

    fn chosen_form(&self) -> Result<Form, Error> {
        if let Some(form) = &self.form {
            return Ok(form.clone());
        }
        let named = std::env::var_os(BINARY).filter(|path| !path.is_empty()).map(PathBuf::from);
        #[cfg(feature = "process")]
        if let Some(binary) = named {
            return Ok(Form::Process(binary));
        }
        #[cfg(not(feature = "process"))]
        if named.is_some() {
            return Err(Error::Start(format!("{BINARY} is set, and keelson-test has no feature `process`")));
        }
        default_form()
    }
}

/// The form if neither the builder nor the environment sets one.
#[cfg(feature = "embedded")]
const fn default_form() -> Result<Form, Error> {
    Ok(Form::Embedded)
}

#[cfg(all(feature = "process", not(feature = "embedded")))]
fn default_form() -> Result<Form, Error> {
    Ok(Form::Process(PathBuf::from("keelson")))
}
