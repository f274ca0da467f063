//! The catalogue of the built-in resources, and their printers.
//!
//! The server reads the catalogue when it is set up. Requests use the surface, which also has other resources.

use std::sync::{Arc, OnceLock};

use keelson_meta::Release;
use keelson_resources::Catalogue;
use keelson_tables::printer::Printer;

use crate::groups::{GROUPS, group};

/// The built-in resources of the default release.
pub fn catalogue() -> &'static Catalogue {
    catalogue_of(Release::DEFAULT)
}

/// The built-in resources of a release. The first call for it builds the tables in a few microseconds.
pub fn catalogue_of(release: Release) -> &'static Catalogue {
    static OLDER: OnceLock<Catalogue> = OnceLock::new();
    static NEWEST: OnceLock<Catalogue> = OnceLock::new();
    let build = || {
        let groups = GROUPS.into_iter().map(|group| Arc::new(group.declaration.group(release)));
        Catalogue::new(groups.filter(|group| !group.resources.is_empty()).collect())
    };
    if release < Release::NEWEST { OLDER.get_or_init(build) } else { NEWEST.get_or_init(build) }
}

/// The printer of a kind in the default release. For kinds without columns it shows name and age.
///
/// A printer accepts its kind in all served versions.
pub fn printer(group_name: &str, kind: &str) -> Printer {
    printer_of(Release::DEFAULT, group_name, kind)
}

/// The printer of a kind in a release.
pub(crate) fn printer_of(release: Release, group_name: &str, kind: &str) -> Printer {
    let found = group(group_name).and_then(|group| {
        let later = group.later_columns.filter(|(since, _)| release >= *since);
        later.and_then(|(_, columns)| columns(kind)).or_else(|| (group.columns)(kind))
    });
    found.unwrap_or_else(Printer::generic)
}
