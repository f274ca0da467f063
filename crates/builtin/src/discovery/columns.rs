//! The columns of discovery.k8s.io: endpoint slices.
//!
//! Like upstream, only the first ports and addresses are shown, since a slice has up to a thousand.

use std::borrow::Cow;

use keelson_meta::json::Value;
use keelson_tables::column::{AGE, Column, NAME};
use keelson_tables::field_value::{FieldValue, Subject};
use keelson_tables::printer::Printer;
use keelson_tables::text::{first_three, or};

use crate::discovery::column_docs as docs;

pub(crate) fn printer(kind: &str) -> Option<Printer> {
    (kind == "EndpointSlice").then(|| Printer::new(ENDPOINT_SLICE, endpoint_slice))
}

const ENDPOINT_SLICE: &[Column<'_>] = &[
    NAME,
    Column::text("AddressType", docs::ENDPOINT_SLICE_ADDRESS_TYPE),
    Column::text("Ports", docs::ENDPOINT_SLICE_PORTS),
    Column::text("Endpoints", docs::ENDPOINT_SLICE_ENDPOINTS),
    AGE,
];

fn endpoint_slice(of: Subject<'_>) -> Vec<Value> {
    let ports = first_three(of.at("ports").items().map(port));
    let endpoints = of.at("endpoints");
    let addresses =
        first_three(endpoints.items().flat_map(|endpoint| endpoint.at("addresses").items()).map(FieldValue::text));
    vec![
        of.name(),
        of.at("addressType").cell(),
        or(&ports, "<unset>").into(),
        or(&addresses, "<unset>").into(),
        of.age(),
    ]
}

/// The text of a port. A port without a number means any port, and is shown by its name.
fn port(port: FieldValue<'_>) -> Cow<'_, str> {
    match port.at("port").set_int() {
        Some(number) => number.to_string().into(),
        None => port.at("name").set_text().unwrap_or("*").into(),
    }
}
