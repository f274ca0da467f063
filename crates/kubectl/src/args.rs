//! The command line: what is asked, of which server, and how the answer is shown.
//!
//! Flags that kubectl has too are named and mean as there.

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

/// Queries of a keelson server: sorted, searched, counted and paged lists.
#[derive(Debug, Parser)]
#[command(name = "kubectl keelson", bin_name = "kubectl keelson", version)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Shows the objects that a query wants, all from one snapshot.
    Get(Box<Get>),
}

#[derive(Debug, Parser)]
pub(crate) struct Get {
    /// The resource, as kubectl knows it: pods, po, deployments.apps.
    pub(crate) resource: String,
    /// Paths by whose values the objects are sorted: [-]PATH[:TYPE], separated by commas.
    #[arg(long, value_name = "PATHS", allow_hyphen_values = true)]
    pub(crate) sort_by: Option<String>,
    /// Words that are all found in an object; the best answers come first.
    #[arg(long, value_name = "WORDS")]
    pub(crate) search: Option<String>,
    /// What holds of the objects, over their fields: "spec.replicas > 3 and status.phase in ('Running')".
    #[arg(long, value_name = "EXPRESSION")]
    pub(crate) filter: Option<String>,
    /// What is true of the objects, in CEL over `object`.
    #[arg(long = "where", value_name = "EXPRESSION")]
    pub(crate) condition: Option<String>,
    /// A label selector.
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub(crate) selector: Option<String>,
    /// A field selector.
    #[arg(long, value_name = "SELECTOR")]
    pub(crate) field_selector: Option<String>,
    /// How many objects are shown; all where it is not given.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,
    /// Which page of so many objects is shown, from 1.
    #[arg(long, value_name = "NUMBER", requires = "limit", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) page: Option<u64>,
    /// A revision, or a time in RFC 3339: what there was then is shown.
    #[arg(long, value_name = "MOMENT")]
    pub(crate) at: Option<String>,
    /// Says how many objects there are, and shows none.
    #[arg(long, conflicts_with_all = ["group_by", "page", "limit"])]
    pub(crate) count: bool,
    /// Says how many objects have which value at a path.
    #[arg(long, value_name = "PATH", conflicts_with_all = ["sort_by", "page"])]
    pub(crate) group_by: Option<String>,
    /// Paths to the fields that are shown, with `-o json`, `yaml` and `ndjson`.
    #[arg(long, value_name = "PATHS")]
    pub(crate) fields: Option<String>,
    /// Shows `metadata.managedFields` too.
    #[arg(long)]
    pub(crate) show_managed_fields: bool,
    /// How the objects are shown.
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) output: Output,
    /// Leaves out the line with the names of the columns.
    #[arg(long)]
    pub(crate) no_headers: bool,
    /// The namespace; that of the kubeconfig's context where it is not given.
    #[arg(short, long)]
    pub(crate) namespace: Option<String>,
    /// All namespaces.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub(crate) all_namespaces: bool,
    /// The kubeconfig; as kubectl finds it where it is not given.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig.
    #[arg(long)]
    pub(crate) context: Option<String>,
    /// How many objects are asked for at once.
    #[arg(long, value_name = "NUMBER", default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) chunk_size: u64,
}

/// How objects are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// As rows, with the columns of the server.
    #[default]
    Table,
    /// As rows with all columns.
    Wide,
    /// As one document.
    Json,
    /// As one document.
    Yaml,
    /// By their names.
    Name,
    /// As JSON, each in a line.
    Ndjson,
}

impl Output {
    /// Whether the server makes rows of the objects.
    pub(crate) const fn is_table(self) -> bool {
        matches!(self, Self::Table | Self::Wide)
    }
}
