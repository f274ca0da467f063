//! The columns of Endpoints: the addresses and ports of a service's pods.
//!
//! Addresses and ports are joined to one text.

use keelson_meta::host_port;
use keelson_meta::json::Value;
use keelson_tables::column::{AGE, Column, NAME};
use keelson_tables::field_value::{FieldValue, Subject};
use keelson_tables::printer::Printer;
use keelson_tables::text::first_three;

use crate::core::column_docs as docs;

pub(super) const ENDPOINTS: Printer = Printer::new(ENDPOINTS_COLUMNS, endpoints);

const ENDPOINTS_COLUMNS: &[Column<'_>] = &[NAME, Column::text("Endpoints", docs::ENDPOINTS_ENDPOINTS), AGE];

fn endpoints(of: Subject<'_>) -> Vec<Value> {
    let subsets = of.at("subsets");
    let shown = if subsets.is_empty() { "<none>".to_owned() } else { first_three(subsets.items().flat_map(reached)) };
    vec![of.name(), shown.into(), of.age()]
}

/// Each combination of address and port. A headless service may have no ports.
fn reached(subset: FieldValue<'_>) -> Box<dyn Iterator<Item = String> + '_> {
    let addresses = move || subset.at("addresses").items().map(|address| address.at("ip").text());
    if subset.at("ports").is_empty() {
        return Box::new(addresses().map(str::to_owned));
    }
    Box::new(subset.at("ports").items().flat_map(move |port| {
        let port = port.at("port").int();
        addresses().map(move |address| host_port(address, port))
    }))
}
