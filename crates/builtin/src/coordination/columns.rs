//! The columns of coordination.k8s.io: leases and lease candidates.
//!
//! The columns show fields of the spec unchanged.

use keelson_meta::json::Value;
use keelson_tables::column::{AGE, Column, NAME};
use keelson_tables::field_value::Subject;
use keelson_tables::printer::Printer;

use crate::coordination::column_docs as docs;

pub(crate) fn printer(kind: &str) -> Option<Printer> {
    Some(match kind {
        "Lease" => Printer::new(LEASE, lease),
        "LeaseCandidate" => Printer::new(LEASE_CANDIDATE, lease_candidate),
        _ => return None,
    })
}

const LEASE: &[Column<'_>] = &[NAME, Column::text("Holder", docs::LEASE_HOLDER), AGE];

fn lease(of: Subject<'_>) -> Vec<Value> {
    vec![of.name(), of.at("spec").at("holderIdentity").cell(), of.age()]
}

const LEASE_CANDIDATE: &[Column<'_>] = &[
    NAME,
    Column::text("LeaseName", docs::LEASE_CANDIDATE_LEASE_NAME),
    Column::text("BinaryVersion", ""),
    Column::text("EmulationVersion", ""),
    AGE,
];

fn lease_candidate(of: Subject<'_>) -> Vec<Value> {
    let spec = of.at("spec");
    vec![
        of.name(),
        spec.at("leaseName").cell(),
        spec.at("binaryVersion").cell(),
        spec.at("emulationVersion").cell(),
        of.age(),
    ]
}
