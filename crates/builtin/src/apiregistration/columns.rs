//! The columns of apiregistration.k8s.io: APIServices.
//!
//! Tables show the service, and its availability from the condition.

use keelson_meta::json::Value;
use keelson_tables::column::{AGE, Column, NAME};
use keelson_tables::field_value::Subject;
use keelson_tables::printer::Printer;

pub(crate) fn printer(kind: &str) -> Option<Printer> {
    (kind == "APIService").then(|| Printer::new(API_SERVICE, api_service))
}

const API_SERVICE: &[Column<'_>] = &[
    NAME,
    Column::text("Service", "The reference to the service that hosts this API endpoint."),
    Column::text("Available", "Whether this service is available."),
    AGE,
];

fn api_service(of: Subject<'_>) -> Vec<Value> {
    let service = of.at("spec").at("service");
    let host = if service.is_set() {
        format!("{}/{}", service.at("namespace").text(), service.at("name").text()).into()
    } else {
        "Local".into()
    };
    vec![of.name(), host, available(&of), of.age()]
}

fn available(of: &Subject<'_>) -> Value {
    let condition = of.at("status").at("conditions").condition("Available");
    match (condition.is_set(), condition.at("status").text()) {
        (false, _) => "Unknown".into(),
        (true, "True") => "True".into(),
        (true, other) => format!("{other} ({})", condition.at("reason").text()).into(),
    }
}
