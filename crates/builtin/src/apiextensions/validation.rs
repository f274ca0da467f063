//! Validation of CustomResourceDefinitions: names, group, scope, versions, columns, subresources and conversion. Their
//! schemas are validated in `apiextensions/schema.rs`.
//!
//! Upstream moves parts that all versions share to the definition itself, so errors about them name no version.

mod defaults;
mod form;
mod nonstructural;
mod rules;
pub(crate) mod schema;
mod structure;
#[cfg(test)]
mod tests;
mod versions;

use std::collections::HashSet;

use form::VERSION;
use keelson_meta::go_format;
use keelson_meta::json::{Value, json};
pub use nonstructural::non_structural;
use schema::StoredDefinition;
use versions::{hoisted, own_parts, schema_of, shared_parts, version_parts};

use crate::admissionregistration::validation::stated_review_versions;
use crate::apiregistration::validation::not_the_server_group;
use crate::validating::at::At;
use crate::validating::base64;
use crate::validating::domains::client_config;
use crate::validating::formats::{DNS_1035_LABEL, DNS_SUBDOMAIN};
use crate::validating::pem;
use crate::validating::type_rules::Rule::{Always, Check, Required};
use crate::validating::type_rules::{IMMUTABLE, Kind, Run, TypeRules, kind};

pub(crate) const KINDS: &[Kind] = &[kind("CustomResourceDefinition").object(&DEFINITION).below(&[("status", &STATUS)])];

const DEFINITION: TypeRules = TypeRules::new(&[
    ("metadata", Check("the name is `PLURAL.GROUP`", named_by_plural_and_group)),
    ("spec", Always(&SPEC)),
    ("status", Always(&STATUS_CONTENT)),
    ("status", Check("each is a version of the definition, and the storage version is included", stored_versions)),
    ("metadata", Check("an approval annotation for groups below `k8s.io` and `kubernetes.io`", approval)),
    ("spec", Check("`preserveUnknownFields` must be false; use schemas", preserve_unknown_fields)),
]);

const SPEC: TypeRules = TypeRules::new(&[
    ("group", Check("a domain that contains a dot", group)),
    ("scope", Check("Cluster or Namespaced", |at, run| one_of(at, &["Cluster", "Namespaced"], run))),
    ("versions", Check("each has a schema", schemas_are_there)),
    ("versions", Check("names, schemas, columns and subresources", each_version)),
    ("versions", Check("unique names; exactly one is the storage version", one_is_stored)),
    ("versions", Check("an invalid first name is reported again at `version`, as kube-apiserver does", first_name)),
    (
        "names",
        Always(
            &const {
                TypeRules::new(&[
                    ("plural", Required("")),
                    ("singular", Required("")),
                    ("kind", Required("")),
                    ("listKind", Required("")),
                    ("", Check("names are DNS labels (RFC 1035), kind and listKind differ", names)),
                ])
            },
        ),
    ),
    ("", Check("fields that all versions share", shared_parts)),
    ("conversion", Check("None or Webhook", conversion)),
    (
        "",
        Check("scope and kind of an established definition are immutable; group and plural are immutable", names_stay),
    ),
]);

const STATUS: TypeRules = TypeRules::new(&[("status", Always(&STATUS_CONTENT))]);
const STATUS_CONTENT: TypeRules =
    TypeRules::new(&[("acceptedNames", Always(&const { TypeRules::new(&[("", Check("names", names))]) }))]);

fn spec_text<'v>(run: &Run<'v>, path: &[&str]) -> &'v str {
    run.object.get(path).and_then(Value::as_str).unwrap_or_default()
}

fn named_by_plural_and_group(metadata: &At<'_, '_>, run: &mut Run<'_>) {
    let required = format!("{}.{}", spec_text(run, &["spec", "names", "plural"]), spec_text(run, &["spec", "group"]));
    for name in ["generateName", "name"].map(|name| metadata.field(name)) {
        if run.before.is_none() && !name.text().is_empty() && name.text() != required {
            name.invalid(run, name.text(), "must be spec.names.plural+\".\"+spec.group");
        }
    }
}

fn joined(at: &At<'_, '_>, faults: &[String], run: &mut Run<'_>) {
    if !faults.is_empty() {
        at.invalid(run, at.text(), faults.join(","));
    }
}

fn one_of(at: &At<'_, '_>, known: &[&str], run: &mut Run<'_>) {
    if at.is_empty() {
        at.required(run, "");
    } else if !known.contains(&at.text()) {
        at.not_supported(run, at.text(), known);
    }
}

fn group(at: &At<'_, '_>, run: &mut Run<'_>) {
    let faults = DNS_SUBDOMAIN.faults(at.text());
    if at.is_empty() {
        at.required(run, "");
    } else if !faults.is_empty() {
        joined(at, &faults, run);
    } else if !at.text().contains('.') {
        at.invalid(run, at.text(), "should be a domain with at least one dot");
    } else {
        not_the_server_group(at, run);
    }
}

fn schemas_are_there(versions: &At<'_, '_>, run: &mut Run<'_>) {
    // Only a definition from before `v1` may lack a schema. It may stay so.
    if StoredDefinition::new(run).lacks_schema() {
        return;
    }
    for version in versions.items().filter(|version| schema_of(version.value).is_null()) {
        version.field("schema").field("openAPIV3Schema").required(run, "");
    }
}

fn each_version(versions: &At<'_, '_>, run: &mut Run<'_>) {
    let own = own_parts(versions.value);
    let before = StoredDefinition::new(run);
    for version in versions.items() {
        let name = version.field("name");
        joined(&name, &DNS_1035_LABEL.faults(name.text()), run);
        version_parts(&version, &own, &before, run);
    }
}

fn one_is_stored(versions: &At<'_, '_>, run: &mut Run<'_>) {
    let mut seen = HashSet::new();
    let unique = versions.list().iter().all(|version| seen.insert(version.get("name").and_then(Value::as_str)));
    let stored = versions.list().iter().filter(|version| version.get("storage") == Some(&json!(true))).count();
    let faults = [
        (!unique, "must contain unique version names"),
        (stored != 1, "must have exactly one version marked as storage version"),
    ];
    for (_, detail) in faults.iter().filter(|(wrong, _)| *wrong) {
        versions.invalid(run, VERSION.list(&hoisted(versions.value)), *detail);
    }
}

/// Upstream also validates the name of the first version as a separate field.
fn first_name(versions: &At<'_, '_>, run: &mut Run<'_>) {
    let first = versions.index(0);
    let name = first.field("name");
    if !name.is_empty()
        && let Some(spec) = versions.parent()
    {
        joined(&spec.field("version").holding(name.value), &DNS_1035_LABEL.faults(name.text()), run);
    }
}

fn names(at: &At<'_, '_>, run: &mut Run<'_>) {
    const MIXED: &str = "may have mixed case, but should otherwise match: ";
    let [plural, singular, kind, list_kind] = ["plural", "singular", "kind", "listKind"].map(|name| at.field(name));
    for name in [plural, singular].iter().filter(|name| !name.is_empty()) {
        joined(name, &DNS_1035_LABEL.faults(name.text()), run);
    }
    for name in [kind, list_kind].iter().filter(|name| !name.is_empty()) {
        let faults = DNS_1035_LABEL.faults(&name.text().to_lowercase());
        if !faults.is_empty() {
            name.invalid(run, name.text(), format!("{MIXED}{}", faults.join(",")));
        }
    }
    let each = |list: &At<'_, '_>, run: &mut Run<'_>| {
        list.items().for_each(|name| joined(&name, &DNS_1035_LABEL.faults(name.text()), run));
    };
    each(&at.field("shortNames"), run);
    if !kind.is_empty() && kind.text() == list_kind.text() {
        list_kind.invalid(run, list_kind.text(), "kind and listKind may not be the same");
    }
    each(&at.field("categories"), run);
}

fn conversion(at: &At<'_, '_>, run: &mut Run<'_>) {
    if !at.is_set() {
        return;
    }
    let strategy = at.field("strategy");
    one_of(&strategy, &["None", "Webhook"], run);
    // Like upstream, errors have the paths of these fields as if they were in the conversion itself.
    let webhook = at.field("webhook");
    let client = at.field("webhookClientConfig");
    let client = client.holding(webhook.field("clientConfig").value);
    let reviews = at.field("conversionReviewVersions");
    let reviews = reviews.holding(webhook.field("conversionReviewVersions").value);
    if strategy.text() == "Webhook" {
        if client.is_set() {
            client_config(&client, run);
            ca_bundle(&client, run);
        } else {
            client.required(run, "required when strategy is set to Webhook");
        }
        if reviews.is_empty() {
            reviews.required(run, "");
        } else {
            stated_review_versions(&reviews, run);
        }
        return;
    }
    const NOT_SET: &str = "should not be set when strategy is not set to Webhook";
    if client.is_set() {
        client.forbidden(run, NOT_SET);
    }
    if !reviews.is_empty() {
        reviews.forbidden(run, NOT_SET);
    }
}

/// Refuses to replace a valid CA bundle by an invalid one. A new one may have any content, since a controller fills it
/// in later.
fn ca_bundle(client: &At<'_, '_>, run: &mut Run<'_>) {
    const BEFORE: [&str; 5] = ["spec", "conversion", "webhook", "clientConfig", "caBundle"];
    let Some(before) = run.before else { return };
    let before = before.get(&BEFORE).and_then(Value::as_str).unwrap_or_default();
    if root_certificates(before).is_err() {
        return;
    }
    let bundle = client.field("caBundle");
    if let Err(fault) = root_certificates(bundle.text()) {
        bundle.invalid(run, bundle.text(), format!("unable to load root certificates: {fault}"));
    }
}

/// Returns an error unless a CA bundle (PEM in base64) is empty or has a certificate.
fn root_certificates(bundle: &str) -> Result<(), &'static str> {
    let bytes = base64::decoded(bundle).unwrap_or_default();
    let mut rest = &bytes[..];
    let mut fault = None;
    while !rest.is_empty() {
        let (Some(block), after) = pem::next(rest) else {
            fault.get_or_insert("unable to parse bytes as PEM block");
            break;
        };
        rest = after;
        match block.label == "CERTIFICATE" && !block.has_headers {
            true if block.is_sequence => return Ok(()),
            true => {
                fault.get_or_insert("failed to parse certificate: x509: malformed certificate");
            }
            false => {}
        }
    }
    if bytes.is_empty() { Ok(()) } else { Err(fault.unwrap_or("no valid certificate authority data seen")) }
}

fn names_stay(spec: &At<'_, '_>, run: &mut Run<'_>) {
    let Some(before) = run.before else { return };
    let names = spec.field("names");
    let stays = |at: &At<'_, '_>, run: &mut Run<'_>| {
        if !at.is_unchanged() {
            at.invalid(run, at.text(), IMMUTABLE);
        }
    };
    let conditions = before.get(&["status", "conditions"]).unwrap_or(&Value::Null);
    if crate::validating::conditions::holds(conditions, "Established") {
        stays(&spec.field("scope"), run);
        stays(&names.field("kind"), run);
    }
    stays(&spec.field("group"), run);
    stays(&names.field("plural"), run);
}

fn stored_versions(status: &At<'_, '_>, run: &mut Run<'_>) {
    let stored = status.field("storedVersions");
    if stored.is_empty() {
        return stored.invalid(run, stored.shown(), "must have at least one stored version");
    }
    let versions = run.object.get(&["spec", "versions"]).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let name = |version: &'_ Value| version.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    for version in versions.iter().filter(|version| version.get("storage") == Some(&json!(true))) {
        let name = name(version);
        if !stored.list().contains(&json!(name)) {
            stored.invalid(run, stored.shown(), format!("must have the storage version {name}"));
        }
    }
    for kept in stored.items() {
        let text = kept.text();
        if !versions.iter().any(|version| name(version) == text) {
            let detail = format!(
                "missing from spec.versions; {text} was previously a storage version, and must remain in spec.versions \
                 until a storage migration ensures no data remains persisted in {text} and removes {text} from \
                 status.storedVersions"
            );
            kept.invalid(run, text, detail);
        }
    }
}

/// The value of the annotation about the approval by the community.
#[derive(PartialEq)]
enum Approval {
    Missing,
    Meaningless,
    Stated,
}

impl Approval {
    fn from_annotation(annotation: &str) -> Self {
        match annotation {
            "" => Self::Missing,
            text if text.starts_with("unapproved") || text.contains("://") => Self::Stated,
            _ => Self::Meaningless,
        }
    }
}

/// Definitions in protected groups need an annotation: a link to the approval, or a statement that there is none. A
/// fault in the stored object may stay.
fn approval(metadata: &At<'_, '_>, run: &mut Run<'_>) {
    const ANNOTATION: &str = "api-approved.kubernetes.io";
    const SEE: &str = "see https://github.com/kubernetes/enhancements/pull/1111";
    let group = spec_text(run, &["spec", "group"]);
    let of = |domain: &&str| group.strip_suffix(*domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    let annotations = metadata.field("annotations");
    let annotation = annotations.key(ANNOTATION);
    let state = Approval::from_annotation(annotation.text());
    let before = Approval::from_annotation(annotation.old.as_str().unwrap_or_default());
    if !["k8s.io", "kubernetes.io"].iter().any(of) || run.before.is_some() && state == before {
        return;
    }
    let need = format!("protected groups must have approval annotation {}", go_format::quote(ANNOTATION));
    match state {
        Approval::Stated => {}
        Approval::Missing => annotation.required(run, format!("{need}, {SEE}")),
        Approval::Meaningless => {
            let detail = format!("{need} with either a URL or a reason starting with \"unapproved\", {SEE}");
            annotation.invalid(run, annotation.text(), detail);
        }
    }
}

fn preserve_unknown_fields(spec: &At<'_, '_>, run: &mut Run<'_>) {
    let preserve = spec.field("preserveUnknownFields");
    if preserve.is_true() && !preserve.is_unchanged() {
        let detail =
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        preserve.invalid(run, true, detail);
    }
}
