//! `keelson gateway`: turns flags into a running gateway and stops it at a signal.

use anyhow::{Context as _, bail};
use keelson_gateway::{GatewaySettings, RunningGateway, SourceSettings};
use keelson_server::console_pages;

use crate::args::{Gateway, Joined as _};
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
    let mut signals = Signals::listen(Parent::of(None)?)?;
    let mut source = SourceSettings::new(args.source.name, args.source.kubeconfig);
    source.not_mirrored = args.not_mirrored.joined().into_iter().collect();
    let settings = GatewaySettings {
        bind: args.bind,
        data_dir: std::path::absolute(&args.data_dir).context("finding the data directory")?,
        extra_names: args.tls_san.joined(),
        source,
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
