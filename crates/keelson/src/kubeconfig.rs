//! `keelson kubeconfig`: copies the administrator's kubeconfig, with another address of the server or other names if
//! requested.
//!
//! The file holds the administrator's private key. Only the owner can read a file that this command writes.

use anyhow::{Context as _, bail};
use kube::config::Kubeconfig;
use serde_json::Value;

use crate::args::PrintKubeconfig;
use crate::output::{answer, note};
use crate::private_file;
use crate::user::kubeconfig_of;

/// Prints or writes the kubeconfig.
///
/// # Errors
/// When there is no kubeconfig, or the new one can't be written.
pub(crate) fn run(settings: &PrintKubeconfig) -> anyhow::Result<()> {
    let file = kubeconfig_of(&settings.administrator);
    if !file.exists() {
        bail!(
            "{} is not there: --data-dir names the directory of the server, which writes it when it starts",
            file.display()
        );
    }
    let text = if settings.server.is_none() && settings.name.is_none() {
        std::fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?
    } else {
        let read = Kubeconfig::read_from(&file).with_context(|| format!("reading {}", file.display()))?;
        changed(read, settings)?
    };
    match &settings.out {
        Some(out) => {
            private_file::write(out, &text).with_context(|| format!("writing {}", out.display()))?;
            note(format_args!("wrote {}", out.display()));
            Ok(())
        }
        None => answer(text.trim_end()),
    }
}

/// The kubeconfig with another address or other names. Certificate data is already embedded.
fn changed(mut config: Kubeconfig, settings: &PrintKubeconfig) -> anyhow::Result<String> {
    let current = config.current_context.clone().context("the file has no current context")?;
    config.contexts.retain(|context| context.name == current);
    let Some(context) = config.contexts.first_mut() else { bail!("the file has no context {current}") };
    let Some(inner) = &mut context.context else { bail!("the context {current} is empty") };
    let (cluster, user) = (inner.cluster.clone(), inner.user.clone().unwrap_or_default());
    config.clusters.retain(|it| it.name == cluster);
    config.auth_infos.retain(|it| it.name == user);
    if let (Some(url), Some(named)) = (&settings.server, config.clusters.first_mut())
        && let Some(cluster) = &mut named.cluster
    {
        cluster.server = Some(url.clone());
    }
    if let Some(name) = &settings.name {
        inner.cluster.clone_from(name);
        inner.user = Some(name.clone());
        context.name.clone_from(name);
        config.current_context = Some(name.clone());
        config.clusters.iter_mut().for_each(|it| it.name.clone_from(name));
        config.auth_infos.iter_mut().for_each(|it| it.name.clone_from(name));
    }
    // JSON is YAML. Secrets are written in plain text, as in the file.
    let value: Value = serde_json::to_value(&config).context("writing the kubeconfig")?;
    serde_json::to_string_pretty(&value).context("writing the kubeconfig")
}
