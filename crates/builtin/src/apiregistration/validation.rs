//! Validation of APIServices: the group and version, the priorities, the service, and the trust in its certificate.
//!
//! An APIService without a service is served by this server, and needs no settings for trust.

#[cfg(test)]
mod tests;

use keelson_meta::json::Value;
use keelson_meta::{SERVER_GROUP, go_format};

use crate::validating::at::At;
use crate::validating::base64;
use crate::validating::domains::service_port;
use crate::validating::formats::{DNS_1035_LABEL, DNS_SUBDOMAIN};
use crate::validating::type_rules::Rule::{Always, Check, Each, StrictlyOneOf};
use crate::validating::type_rules::{Kind, Run, TypeRules, kind};

pub(crate) const KINDS: &[Kind] = &[kind("APIService").object(&SERVICE).below(&[("status", &STATUS)])];

const SERVICE: TypeRules = TypeRules::new(&[
    ("metadata", Check("the name is `VERSION.GROUP`", named_by_version_and_group)),
    ("spec", Always(&SPEC)),
]);

const SPEC: TypeRules = TypeRules::new(&[
    ("group", Check("DNS subdomain; v1 alone has none", group)),
    ("version", Check("DNS label (RFC 1035)", |at, run| at.complain(run, DNS_1035_LABEL.faults(at.text())))),
    ("groupPriorityMinimum", Check("1 to 20000", |at, run| priority(at, 20_000, run))),
    ("versionPriority", Check("1 to 1000", |at, run| priority(at, 1000, run))),
    ("", Check("without a service: no `caBundle` and no `insecureSkipTLSVerify`; with one: not both", trust)),
]);

const STATUS: TypeRules = TypeRules::new(&[(
    "status",
    Always(
        &const {
            TypeRules::new(&[(
                "conditions",
                Each(&const { TypeRules::new(&[("status", StrictlyOneOf(&["True", "False", "Unknown"]))]) }),
            )])
        },
    ),
)]);

fn named_by_version_and_group(metadata: &At<'_, '_>, run: &mut Run<'_>) {
    let spec = |field: &str| run.object.get(&["spec", field]).and_then(Value::as_str).unwrap_or_default();
    let required = format!("{}.{}", spec("version"), spec("group"));
    // `generateName` must equal the required name too, so that no name can be generated. A missing name is reported
    // elsewhere.
    for name in ["generateName", "name"].map(|field| metadata.field(field)) {
        if !name.is_empty() && name.text() != required {
            let why = format!("must be `spec.version+\".\"+spec.group`: {}", go_format::quote(&required));
            name.invalid(run, name.text(), why);
        }
    }
}

fn group(at: &At<'_, '_>, run: &mut Run<'_>) {
    let version = at.parent().map_or("", |spec| spec.field("version").text());
    if !at.is_empty() {
        at.complain(run, DNS_SUBDOMAIN.faults(at.text()));
        not_the_server_group(at, run);
    } else if version != "v1" {
        at.required(run, "only v1 may have an empty group and it better be legacy kube");
    }
}

/// Refuses new objects in the server's own group. An object that an older release stored can still be changed and
/// deleted.
pub(crate) fn not_the_server_group(group: &At<'_, '_>, run: &mut Run<'_>) {
    if run.before.is_none() && group.text() == SERVER_GROUP {
        group.invalid(run, group.text(), "is the group of the API server itself and can't be served by anything else");
    }
}

fn priority(at: &At<'_, '_>, most: i64, run: &mut Run<'_>) {
    if !(1..=most).contains(&at.int()) {
        at.invalid(run, at.int(), format!("must be positive and less than {most}"));
    }
}

fn trust(spec: &At<'_, '_>, run: &mut Run<'_>) {
    let [service, bundle, trusting] = ["service", "caBundle", "insecureSkipTLSVerify"].map(|field| spec.field(field));
    if !service.is_set() {
        if !bundle.is_empty() {
            let length = format!("{} bytes", base64::decoded_length(bundle.text()));
            bundle.invalid(run, length, "local APIServices may not have a caBundle");
        }
        if trusting.is_true() {
            trusting.invalid(run, true, "local APIServices may not have insecureSkipTLSVerify");
        }
        return;
    }
    for field in ["namespace", "name"].map(|field| service.field(field)) {
        if field.is_empty() {
            field.required(run, "");
        }
    }
    service_port(&service.field("port"), run);
    if trusting.is_true() && !bundle.is_empty() {
        trusting.invalid(run, true, "may not be true if caBundle is present");
    }
}
