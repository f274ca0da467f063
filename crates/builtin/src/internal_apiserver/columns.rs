//! The columns of internal.apiserver.k8s.io: the storage versions of the API servers.
//!
//! The common version is shown if all servers agree.

use keelson_meta::json::Value;
use keelson_tables::column::{AGE, Column, NAME};
use keelson_tables::field_value::Subject;
use keelson_tables::printer::Printer;
use keelson_tables::text::{first_three, or};

use crate::internal_apiserver::column_docs as docs;

pub(crate) fn printer(kind: &str) -> Option<Printer> {
    (kind == "StorageVersion").then(|| Printer::new(STORAGE_VERSION, storage_version))
}

const STORAGE_VERSION: &[Column<'_>] = &[
    NAME,
    Column::text("CommonEncodingVersion", docs::STORAGE_VERSION_COMMON_ENCODING_VERSION),
    Column::text("StorageVersions", "storageVersions lists the reported versions per API server instance."),
    AGE,
];

fn storage_version(of: Subject<'_>) -> Vec<Value> {
    let status = of.at("status");
    let servers = status.at("storageVersions");
    let versions = first_three(
        servers
            .items()
            .map(|server| format!("{}={}", server.at("apiServerID").text(), server.at("encodingVersion").text())),
    );
    vec![of.name(), status.at("commonEncodingVersion").cell_or("<unset>"), or(&versions, "<unset>").into(), of.age()]
}
