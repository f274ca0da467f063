//! `kube-apiserver`: keelson's server with the command line of kube-apiserver, for programs that start kube-apiserver,
//! such as envtest.
//!
//! The command runs as `keelson kube-apiserver`, or when the executable is named `kube-apiserver`. The table [`flags`]
//! has the flags, and [`own`] translates them into settings of `keelson serve`. Controllers run only if a flag names
//! them, since kube-apiserver has none.

mod etcd;
mod flags;
mod own;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;

use self::etcd::Stores;
use self::own::{Line, TranslatedCommand, TranslatedFlag};
use crate::output;
use crate::private_file;

/// Runs the server with these arguments, which do not include the program's name.
pub(crate) fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments = arguments.into_iter().map(|argument| argument.to_string_lossy().into_owned());
    let done = flags::read(arguments).map_err(anyhow::Error::msg).and_then(|given| {
        let line = Line::new(given).map_err(anyhow::Error::msg)?;
        if line.has(TranslatedFlag::Help) {
            return output::answer(own::help().trim_end());
        }
        match line.value(TranslatedFlag::Version) {
            Some("false") | None => serve(&line),
            Some(_) => output::answer(format_args!("Kubernetes {}", keelson_server::KUBERNETES_VERSION)),
        }
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::note(format_args!("Error: {}", crate::causes(&error)));
            ExitCode::FAILURE
        }
    }
}

fn serve(line: &Line) -> anyhow::Result<()> {
    let stores = Stores::at(&line.items(TranslatedFlag::EtcdServers));
    let place = line.place(&stores).map_err(anyhow::Error::msg)?;
    let ends_with_parent = own::is_of_envtest(&line.cert_dir());
    let TranslatedCommand { serve, notes } = line.translated(&place, ends_with_parent).map_err(anyhow::Error::msg)?;
    let (certificate, key) = line.serving_pair();
    if !certificate.exists() && !key.exists() && !line.has(TranslatedFlag::TlsCertFile) {
        make_pair(&certificate, &key, serve.bind.ip()).context("making a serving certificate in --cert-dir")?;
    }
    crate::serve::run_noting(*serve, &notes)
}

/// Makes a serving certificate in the case in which kube-apiserver makes one.
fn make_pair(certificate: &Path, key: &Path, address: std::net::IpAddr) -> anyhow::Result<()> {
    let pair = keelson_server::serving_pair(&[address.to_string()])?;
    if let Some(directory) = certificate.parent() {
        std::fs::create_dir_all(directory)?;
    }
    private_file::write(key, &pair.key_pem)?;
    private_file::write(certificate, &pair.certificate_pem)?;
    Ok(())
}
