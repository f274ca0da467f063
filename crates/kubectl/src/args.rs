//! The command line: the query, the server, and the output format.
//!
//! Flags that kubectl has too have its names and meanings.

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
    /// Shows the objects of a query, all from one snapshot.
    Get(Box<Get>),
}

#[derive(Debug, Parser)]
pub(crate) struct Get {
    /// The resource in any form that kubectl accepts: pods, po, deployments.apps.
    pub(crate) resource: String,
    /// Paths to sort the objects by: [-]PATH[:TYPE], separated by commas.
    #[arg(long, value_name = "PATHS", allow_hyphen_values = true)]
    pub(crate) sort_by: Option<String>,
    /// Words that each object must contain; the best matches come first.
    #[arg(long, value_name = "WORDS")]
    pub(crate) search: Option<String>,
    /// A condition on fields: "spec.replicas > 3 and status.phase in ('Running')".
    #[arg(long, value_name = "EXPRESSION")]
    pub(crate) filter: Option<String>,
    /// A condition in CEL over `object`.
    #[arg(long = "where", value_name = "EXPRESSION")]
    pub(crate) condition: Option<String>,
    /// A label selector.
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub(crate) selector: Option<String>,
    /// A field selector.
    #[arg(long, value_name = "SELECTOR")]
    pub(crate) field_selector: Option<String>,
    /// The number of objects to show; all by default.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,
    /// The page to show, from 1, with --limit objects each.
    #[arg(long, value_name = "NUMBER", requires = "limit", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) page: Option<u64>,
    /// A revision, or a time in RFC 3339: shows the objects of that time.
    #[arg(long, value_name = "MOMENT")]
    pub(crate) at: Option<String>,
    /// Prints the number of objects instead of the objects.
    #[arg(long, conflicts_with_all = ["group_by", "page", "limit"])]
    pub(crate) count: bool,
    /// Prints the number of objects for each value at a path.
    #[arg(long, value_name = "PATH", conflicts_with_all = ["sort_by", "page"])]
    pub(crate) group_by: Option<String>,
    /// Paths to the fields to show, with `-o json`, `yaml` and `ndjson`.
    #[arg(long, value_name = "PATHS")]
    pub(crate) fields: Option<String>,
    /// Shows `metadata.managedFields` too.
    #[arg(long)]
    pub(crate) show_managed_fields: bool,
    /// The output format.
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) output: Output,
    /// Omits the line with the column names.
    #[arg(long)]
    pub(crate) no_headers: bool,
    /// The namespace; that of the kubeconfig's context by default.
    #[arg(short, long)]
    pub(crate) namespace: Option<String>,
    /// All namespaces.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub(crate) all_namespaces: bool,
    /// The kubeconfig; found as by kubectl by default.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig.
    #[arg(long)]
    pub(crate) context: Option<String>,
    /// The number of objects in each request.
    #[arg(long, value_name = "NUMBER", default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) chunk_size: u64,
}

/// An output format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// Rows with the server's default columns.
    #[default]
    Table,
    /// Rows with all columns.
    Wide,
    /// A JSON document.
    Json,
    /// A YAML document.
    Yaml,
    /// Names.
    Name,
    /// JSON, one object per line.
    Ndjson,
}

impl Output {
    /// Returns true if the server formats the rows.
    pub(crate) const fn is_table(self) -> bool {
        matches!(self, Self::Table | Self::Wide)
    }
}
