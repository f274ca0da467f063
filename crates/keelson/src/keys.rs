//! `keelson keys`: new keys for a rotation.
//!
//! Keys are written to new files that only their owner can read. The operator moves them to the places from which a
//! server reads them; see `docs/explanation/security.md`.

use std::path::Path;

use anyhow::{Context as _, anyhow, bail};
use keelson_meta::SystemClock;
use keelson_meta::clock::Clock as _;
use keelson_meta::random::SystemRandom;
use keelson_server::new_keys;

use crate::args::Keys;
use crate::output::answer;
use crate::private_file;

/// Makes keys.
///
/// # Errors
/// When a file exists or can't be written.
pub(super) fn run(keys: Keys) -> anyhow::Result<()> {
    match keys {
        Keys::TokenSeal => answer(new_keys::token_seal_key().ok_or_else(|| anyhow!("the system gives no randomness"))?),
        Keys::ServiceAccount { out } => {
            let (private, public) = new_keys::service_account_key().context("making a key")?;
            write(&out, ("key", &private), ("pub", &public))
        }
        Keys::Authority { out } => {
            let made = new_keys::authority(SystemClock.now(), &SystemRandom).context("making an authority")?;
            write(&out, ("key", &made.key_pem), ("crt", &made.certificate_pem))
        }
    }
}

/// Writes a private key and its public part to two files with the same stem.
fn write(stem: &Path, private: (&str, &str), public: (&str, &str)) -> anyhow::Result<()> {
    let file = |kind: &str| {
        let mut name = stem.as_os_str().to_owned();
        name.push(".");
        name.push(kind);
        std::path::PathBuf::from(name)
    };
    let (private_file, public_file) = (file(private.0), file(public.0));
    if let Some(there) = [&private_file, &public_file].into_iter().find(|file| file.exists()) {
        bail!("{} exists", there.display());
    }
    for (file, text) in [(&private_file, private.1), (&public_file, public.1)] {
        private_file::write(file, text).with_context(|| format!("writing {}", file.display()))?;
    }
    answer(format_args!("{}\n{}", private_file.display(), public_file.display()))
}
