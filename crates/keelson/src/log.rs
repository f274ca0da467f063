//! The log of the process, its verbosity, and the layer that records spans.
//!
//! The verbosity can change while the process runs. `KEELSON_LOG` sets the levels of single modules until then.

use std::io::IsTerminal as _;
use std::sync::atomic::{AtomicU32, Ordering};

use keelson_server::{LogVerbosity, SpanLayer};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt, reload};

use crate::args::LogFormat;
use crate::log_fields::EscapedFields;
use crate::output::{JsonLog, Log};

/// The beginning of the targets of this program's spans.
const OWN: &str = "keelson";

/// The levels of the libraries of the wire, unless the filter names them. They warn about each connection that breaks a
/// rule, so that anyone could fill the log.
const WIRE: &str = "h2=error,hyper=error,hyper_util=error,rustls=error,tungstenite=error";

/// Changes the verbosity of the log.
pub(crate) struct Verbosity {
    current: AtomicU32,
    filter: reload::Handle<EnvFilter, Registry>,
}

impl LogVerbosity for Verbosity {
    fn get(&self) -> u32 {
        self.current.load(Ordering::Relaxed)
    }

    fn set(&self, verbosity: u32) -> Result<(), String> {
        self.filter.reload(filter(verbosity)).map_err(|error| error.to_string())?;
        self.current.store(verbosity, Ordering::Relaxed);
        Ok(())
    }
}

/// Starts the log. `spans` also gets the spans of this program.
pub(crate) fn start(format: LogFormat, verbosity: i32, spans: Option<SpanLayer>) -> Verbosity {
    let verbosity = u32::try_from(verbosity).unwrap_or_default();
    let stated = std::env::var("KEELSON_LOG").ok().filter(|stated| !stated.trim().is_empty());
    let stated = stated.and_then(|stated| EnvFilter::try_new(format!("{WIRE},{stated}")).ok());
    let first = stated.map_or_else(|| filter(verbosity), without_values);
    let (first, handle) = reload::Layer::new(first);
    let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty());
    // A failed write to the log must not be reported on standard error, which is the log.
    let log = fmt::layer().log_internal_errors(false).with_ansi(colours);
    let log = match format {
        LogFormat::Text => log.with_writer(|| Log).fmt_fields(EscapedFields).with_filter(first).boxed(),
        LogFormat::Json => log.with_writer(|| JsonLog).json().with_filter(first).boxed(),
    };
    let log = tracing_subscriber::registry().with(log);
    match spans {
        Some(spans) => {
            let own = filter_fn(|callsite| callsite.is_span() && callsite.target().starts_with(OWN));
            log.with(spans.with_filter(own.with_max_level_hint(LevelFilter::DEBUG))).init();
        }
        // An absent layer would keep `tracing` from caching that nothing wants a callsite.
        None => log.init(),
    }
    Verbosity { current: AtomicU32::new(verbosity), filter: handle }
}

/// The levels of a verbosity.
fn filter(verbosity: u32) -> EnvFilter {
    without_values(match verbosity {
        8.. => EnvFilter::new("trace"),
        4.. => EnvFilter::new("debug"),
        _ => EnvFilter::new(format!("info,{WIRE}")),
    })
}

/// Limits the driver of PostgreSQL to `info`. At `debug` it logs the parameters of statements: the stored objects, with
/// all Secrets.
fn without_values(filter: EnvFilter) -> EnvFilter {
    match "tokio_postgres=info".parse() {
        Ok(directive) => filter.add_directive(directive),
        Err(_) => filter,
    }
}
