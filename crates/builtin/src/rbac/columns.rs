//! The columns of rbac.authorization.k8s.io: bindings. Roles have the default columns.
//!
//! The wide columns list the subjects by kind.

use keelson_meta::json::Value;
use keelson_tables::column::{AGE, Column, NAME};
use keelson_tables::field_value::Subject;
use keelson_tables::printer::Printer;
use keelson_tables::text::join;

use crate::rbac::column_docs as docs;

pub(crate) fn printer(kind: &str) -> Option<Printer> {
    Some(match kind {
        "ClusterRoleBinding" => Printer::new(CLUSTER_ROLE_BINDING, binding),
        "RoleBinding" => Printer::new(ROLE_BINDING, binding),
        _ => return None,
    })
}

const ROLE_BINDING: &[Column<'_>] = &[
    NAME,
    Column::text("Role", docs::ROLE_BINDING_ROLE),
    AGE,
    Column::text("Users", "Users in the roleBinding").wide(),
    Column::text("Groups", "Groups in the roleBinding").wide(),
    Column::text("ServiceAccounts", "ServiceAccounts in the roleBinding").wide(),
];

const CLUSTER_ROLE_BINDING: &[Column<'_>] = &[
    NAME,
    Column::text("Role", docs::CLUSTER_ROLE_BINDING_ROLE),
    AGE,
    Column::text("Users", "Users in the clusterRoleBinding").wide(),
    Column::text("Groups", "Groups in the clusterRoleBinding").wide(),
    Column::text("ServiceAccounts", "ServiceAccounts in the clusterRoleBinding").wide(),
];

fn binding(of: Subject<'_>) -> Vec<Value> {
    let role = of.at("roleRef");
    vec![
        of.name(),
        format!("{}/{}", role.at("kind").text(), role.at("name").text()).into(),
        of.age(),
        subjects(&of, "User"),
        subjects(&of, "Group"),
        subjects(&of, "ServiceAccount"),
    ]
}

/// The subjects of one kind. Service accounts are shown with their namespace.
fn subjects(of: &Subject<'_>, kind: &str) -> Value {
    let all = of.at("subjects");
    let of_kind = all.items().filter(|subject| subject.at("kind").text() == kind).map(|subject| {
        let name = subject.at("name").text();
        if kind == "ServiceAccount" { format!("{}/{name}", subject.at("namespace").text()) } else { name.to_owned() }
    });
    join(of_kind, ", ").into()
}
