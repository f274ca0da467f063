//! The settings of a server before its start.
//!
//! They have the same meaning in both forms. A setting that only one form knows says so.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use crate::error::Error;
use crate::keelson::Keelson;

/// The variable with the path of a binary, which takes the place of the server in this process.
const BINARY: &str = "KEELSON_BIN";

/// The form of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Form {
    /// In the process of the test, on threads of its own.
    #[cfg(feature = "embedded")]
    Embedded,
    /// A child process of this program.
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
    /// Chooses the form. Without this call it is the binary of `KEELSON_BIN` if that is set, then a server in this process, then the
    /// `keelson` on the path, as far as the features of this crate have them.
    #[must_use]
    pub fn form(mut self, form: Form) -> Self {
        self.form = Some(form);
        self
    }

    /// The controllers that run, as `--controllers` has them: `*`, names, and `-name` for those that do not. All run without this
    /// call, and none with an empty text, as in envtest.
    #[must_use]
    pub fn controllers(mut self, controllers: &str) -> Self {
        self.controllers = Some(controllers.to_owned());
        self
    }

    /// The time for which earlier states can be read: watches resume and lists continue. 5 minutes without this call.
    #[must_use]
    pub fn history(mut self, history: Duration) -> Self {
        self.history = Some(history);
        self
    }

    /// Another argument of `keelson serve`. A server in this process refuses it.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// Starts the server, which is ready when this returns.
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

/// The form where nothing chooses one.
#[cfg(feature = "embedded")]
const fn default_form() -> Result<Form, Error> {
    Ok(Form::Embedded)
}

#[cfg(all(feature = "process", not(feature = "embedded")))]
fn default_form() -> Result<Form, Error> {
    Ok(Form::Process(PathBuf::from("keelson")))
}
