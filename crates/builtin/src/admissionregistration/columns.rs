//! The columns of admissionregistration.k8s.io: webhook configurations, admission policies and their bindings.
//!
//! Tables show the number of webhooks, and the parameters and bindings of policies. `kubectl describe` shows the rest.

use keelson_meta::json::Value;
use keelson_tables::column::{AGE, Column, NAME};
use keelson_tables::field_value::Subject;
use keelson_tables::printer::Printer;
use keelson_tables::selector;

pub(crate) fn printer(kind: &str) -> Option<Printer> {
    Some(match kind {
        "MutatingAdmissionPolicy" => Printer::new(MUTATING_POLICY, mutating_policy),
        "MutatingAdmissionPolicyBinding" | "ValidatingAdmissionPolicyBinding" => Printer::new(BINDING, binding),
        "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => Printer::new(WEBHOOKS, webhooks),
        "ValidatingAdmissionPolicy" => Printer::new(VALIDATING_POLICY, validating_policy),
        _ => return None,
    })
}

const WEBHOOKS: &[Column<'_>] = &[
    NAME,
    Column::integer("Webhooks", "Webhooks indicates the number of webhooks registered in this configuration"),
    AGE,
];

fn webhooks(of: Subject<'_>) -> Vec<Value> {
    vec![of.name(), of.at("webhooks").len_cell(), of.age()]
}

const VALIDATING_POLICY: &[Column<'_>] = &[
    NAME,
    Column::integer(
        "Validations",
        "Validations indicates the number of validation rules defined in this configuration",
    ),
    Column::text("ParamKind", "ParamKind specifies the kind of resources used to parameterize this policy"),
    AGE,
];

fn validating_policy(of: Subject<'_>) -> Vec<Value> {
    vec![of.name(), of.at("spec").at("validations").len_cell(), param_kind(&of), of.age()]
}

const MUTATING_POLICY: &[Column<'_>] = &[
    NAME,
    Column::integer("Mutations", "Mutation indicates the number of mutations rules defined in this configuration"),
    Column::text("ParamKind", "ParamKind specifies the kind of resources used to parameterize this policy"),
    AGE,
];

fn mutating_policy(of: Subject<'_>) -> Vec<Value> {
    vec![of.name(), of.at("spec").at("mutations").len_cell(), param_kind(&of), of.age()]
}

fn param_kind(of: &Subject<'_>) -> Value {
    let kind = of.at("spec").at("paramKind");
    if !kind.is_set() {
        return "<unset>".into();
    }
    format!("{}/{}", kind.at("apiVersion").text(), kind.at("kind").text()).into()
}

const BINDING: &[Column<'_>] = &[
    NAME,
    Column::text("PolicyName", "PolicyName indicates the policy definition which the policy binding binded to"),
    Column::text("ParamRef", "ParamRef indicates the param resource which sets the configuration param"),
    AGE,
];

fn binding(of: Subject<'_>) -> Vec<Value> {
    vec![of.name(), of.at("spec").at("policyName").cell(), param_ref(&of), of.age()]
}

/// The namespace and name of the parameters. Shows `*` without a name, since a binding does not say if its policy has
/// any.
fn param_ref(of: &Subject<'_>) -> Value {
    let param = of.at("spec").at("paramRef");
    let (name, namespace) = (param.at("name").text(), param.at("namespace").text());
    if !name.is_empty() {
        return format!("{}/{name}", keelson_tables::text::or(namespace, "*")).into();
    }
    if param.at("selector").is_set() {
        return selector::go_struct(param.at("selector")).into();
    }
    "<unset>".into()
}
