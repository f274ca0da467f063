//! `keelson gateway`: turns flags into a running gateway and stops it at a signal.
//!
//! A gateway that fails stops in the same way as a server.

use std::collections::BTreeSet;

use anyhow::{Context as _, bail};
use keelson_gateway::{GatewaySettings, RunningGateway, SourceSettings};
use keelson_server::console_pages;

use crate::args::{Gateway, ListValues as _, NamedSource};
use crate::log;
use crate::parent::Parent;
use crate::serve::{LAST_GRACE, Signals, end_soon};

/// Runs the gateway until SIGINT or SIGTERM, or a failure.
pub(crate) fn run(args: Gateway) -> anyhow::Result<()> {
    log::start(args.log_format, args.verbosity, None);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("starting threads")?;
    let served = runtime.block_on(serve(args));
    // Abandoned work that cannot be interrupted must not delay the end of the process.
    runtime.shutdown_timeout(LAST_GRACE);
    served
}

async fn serve(args: Gateway) -> anyhow::Result<()> {
    let mut signals = Signals::listen(Parent::from_watched(None)?)?;
    let not_mirrored: BTreeSet<String> = args.not_mirrored.joined().into_iter().collect();
    if let Some(unknown) =
        args.cluster_label.iter().find(|label| args.source.iter().all(|known| known.name != label.cluster))
    {
        bail!("--cluster-label: there is no source {}", unknown.cluster);
    }
    let labels = |name: &str| {
        let of_source = args.cluster_label.iter().filter(|label| label.cluster == name);
        of_source.map(|label| (label.key.clone(), label.value.clone())).collect()
    };
    let source = |named: NamedSource| SourceSettings {
        not_mirrored: not_mirrored.clone(),
        impersonates: args.impersonate,
        labels: labels(&named.name),
        ..SourceSettings::new(named.name, named.kubeconfig)
    };
    let settings = GatewaySettings {
        bind: args.bind,
        data_dir: std::path::absolute(&args.data_dir).context("finding the data directory")?,
        extra_names: args.tls_san.joined(),
        sources: args.source.into_iter().map(source).collect(),
        console: args.console.then_some(console_pages),
    };
    let gateway = RunningGateway::start(settings).await?;
    let failure = tokio::select! {
        () = signals.received() => None,
        failure = gateway.failed() => {
            end_soon(failure.to_string());
            Some(failure.to_string())
        }
    };
    gateway.shutdown().await;
    match failure {
        Some(why) => bail!(why),
        None => Ok(()),
    }
}
