//! The catalogue of the built-in resources, and their printers.
//!
//! The server reads the catalogue when it is set up. Requests use the surface, which also has other resources.

use std::sync::{Arc, OnceLock};

use keelson_resources::Catalogue;
use keelson_tables::printer::Printer;

use crate::groups::{GROUPS, group};

/// The built-in resources. The first call builds the tables in a few microseconds.
pub fn catalogue() -> &'static Catalogue {
    static BUILTIN: OnceLock<Catalogue> = OnceLock::new();
    BUILTIN
        .get_or_init(|| Catalogue::new(GROUPS.into_iter().map(|group| Arc::new(group.declaration.group())).collect()))
}

/// The printer of a kind. For kinds without columns it shows name and age.
///
/// A printer accepts its kind in all served versions.
pub fn printer(group_name: &str, kind: &str) -> Printer {
    group(group_name).and_then(|group| (group.columns)(kind)).unwrap_or_else(Printer::generic)
}
