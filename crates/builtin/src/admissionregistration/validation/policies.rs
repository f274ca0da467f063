//! Validation of admission policies and their bindings.
//!
//! While fields are validated, the variables are collected that expressions may use: see `expressions`.

use std::collections::HashSet;

use keelson_cel::Type;
use keelson_cel::decl::is_identifier;

use super::{CONDITIONS, FAILURE_POLICY, MATCH, REINVOCATION_POLICY};
use crate::validating::at::At;
use crate::validating::expressions::{Policy, of_policy, of_variable};
use crate::validating::formats::{DNS_1035_LABEL, DNS_SUBDOMAIN, PATH_SEGMENT, QUALIFIED_NAME};
use crate::validating::selectors::label_selector;
use crate::validating::type_rules::Rule::{Always, Check, Each, Format, In, OneOf, Required, With};
use crate::validating::type_rules::{Rule, Run, TypeRules};

pub(super) const VALIDATING: TypeRules = TypeRules::new(&[("spec", Always(&VALIDATING_SPEC))]);

const VALIDATING_SPEC: TypeRules = TypeRules::new(&[
    ("", USES),
    ("failurePolicy", Required("")),
    ("failurePolicy", FAILURE_POLICY),
    ("paramKind", In(&PARAM_KIND)),
    ("matchConstraints", Required("")),
    ("matchConstraints", In(&CONSTRAINTS)),
    ("matchConditions", CONDITIONS),
    ("variables", Each(&VARIABLE)),
    ("", Check("`validations` or `auditAnnotations`", some_validations)),
    ("validations", Each(&VALIDATION)),
    ("auditAnnotations", With("at most 20, with unique keys", audit_annotations, &AUDIT_ANNOTATION)),
]);

pub(super) const MUTATING: TypeRules = TypeRules::new(&[("spec", Always(&MUTATING_SPEC))]);

const MUTATING_SPEC: TypeRules = TypeRules::new(&[
    ("", USES),
    ("failurePolicy", Required("")),
    ("failurePolicy", FAILURE_POLICY),
    ("paramKind", In(&PARAM_KIND)),
    ("matchConstraints", Required("")),
    ("matchConstraints", In(&CONSTRAINTS)),
    ("matchConstraints", NO_DELETION),
    ("matchConditions", CONDITIONS),
    ("variables", Each(&VARIABLE)),
    ("mutations", Required("mutations must contain at least one item")),
    ("mutations", Each(&const { TypeRules::new(&[("", Check("exactly the patch of the `patchType`", mutation))]) })),
    ("reinvocationPolicy", Required("")),
    ("reinvocationPolicy", REINVOCATION_POLICY),
]);

const CONSTRAINTS: TypeRules =
    TypeRules::shared("Match constraints", &[("", Always(&MATCH)), ("resourceRules", Required(""))]);

const PARAM_KIND: TypeRules = TypeRules::shared(
    "Kind of parameters",
    &[
        ("apiVersion", Required("")),
        ("apiVersion", Check("group and version", api_version)),
        ("kind", Required("")),
        ("kind", Check("DNS label (RFC 1035) in any case", param_kind)),
    ],
);

const VARIABLE: TypeRules = TypeRules::shared(
    "Variable of expressions",
    &[
        (
            "name",
            Check("required: identifier of CEL", |at, run| {
                if at.text().trim().is_empty() {
                    at.required(run, "name is not specified");
                } else if !is_identifier(at.text()) {
                    at.invalid(run, at.text(), "must be a valid CEL identifier");
                }
            }),
        ),
        (
            "",
            Check("required: an expression", |at, run| {
                let expression = at.field("expression");
                if is_stated(&expression, run) {
                    of_variable(&expression, at.field("name").text(), run);
                }
            }),
        ),
    ],
);

/// Collects the variables that expressions may use.
const USES: Rule = Check(
    "expressions can use the request, the objects, the parameters, and variables that are defined before them",
    |at, run| {
        run.policy = Some(Policy {
            is_judged: run.before.is_none() || !at.is_unchanged(),
            params: at.field_is_set("paramKind"),
            patches: at.field_is_set("mutations"),
            variables: (!at.field("variables").is_empty()).then(Vec::new),
            declared: None,
        });
    },
);

/// Returns true if the field has an expression; reports an error otherwise.
fn is_stated(at: &At<'_, '_>, run: &mut Run<'_>) -> bool {
    let is_stated = !at.text().trim().is_empty();
    if !is_stated {
        at.required(run, "expression is not specified");
    }
    is_stated
}

const VALIDATION: TypeRules = TypeRules::new(&[
    (
        "expression",
        Check("required: comes to a truth value", |at, run| {
            if is_stated(at, run) {
                of_policy(at, true, &[Type::Bool], run);
            }
        }),
    ),
    (
        "messageExpression",
        Check("not blank; the expression returns a string", |at, run| {
            not_blank(at, run);
            if !at.text().trim().is_empty() {
                of_policy(at, false, &[Type::String], run);
            }
        }),
    ),
    (
        "message",
        Check("not blank, without line breaks", |at, run| {
            not_blank(at, run);
            if at.text().trim().contains(['\n', '\r']) {
                at.invalid(run, at.text(), "must not contain line breaks");
            }
        }),
    ),
    ("reason", OneOf(&["Forbidden", "Invalid", "RequestEntityTooLarge"])),
]);

const AUDIT_ANNOTATION: TypeRules = TypeRules::new(&[(
    "valueExpression",
    Check("required: at most 5120 bytes, comes to a text or null", |at, run| {
        /// The longest expression, in bytes.
        const MAX: usize = 5 * 1024;
        match at.text().trim().len() {
            0 => at.required(run, "valueExpression is not specified"),
            length if length > MAX => at.required(run, format!("must not exceed {MAX} bytes in length")),
            _ => of_policy(at, true, &[Type::String, Type::Null], run),
        }
    }),
)]);

pub(super) const VALIDATING_BINDING: TypeRules = TypeRules::new(&[(
    "spec",
    Always(
        &const {
            TypeRules::new(&[
                ("", Always(&BINDING)),
                (
                    "validationActions",
                    Check("Audit, Deny and Warn, without duplicates; not both Deny and Warn", actions),
                ),
            ])
        },
    ),
)]);

pub(super) const MUTATING_BINDING: TypeRules = TypeRules::new(&[(
    "spec",
    Always(&const { TypeRules::new(&[("", Always(&BINDING)), ("matchResources", NO_DELETION)]) }),
)]);

const BINDING: TypeRules = TypeRules::shared(
    "Binding of an admission policy",
    &[
        ("policyName", Required("")),
        ("policyName", Format(&DNS_SUBDOMAIN)),
        ("paramRef", In(&PARAM_REF)),
        ("matchResources", In(&MATCH)),
    ],
);

const PARAM_REF: TypeRules = TypeRules::new(&[
    ("", Check("a name or a selector", name_or_selector)),
    ("parameterNotFoundAction", Required("")),
    ("parameterNotFoundAction", OneOf(&["Deny", "Allow"])),
]);

pub(super) const STATUS: TypeRules = TypeRules::new(&[(
    "status",
    Check("warnings have a text and a field", |at, run| {
        for warning in at.field("typeChecking").field("expressionWarnings").items() {
            for field in ["warning", "fieldRef"].map(|field| warning.field(field)) {
                if field.text().trim().is_empty() {
                    field.required(run, "");
                }
            }
        }
    }),
)]);

/// Like upstream, one error covers all rules.
const NO_DELETION: Rule = Check("no operation but CREATE, UPDATE and CONNECT", |at, run| {
    const OPERATIONS: [&str; 4] = ["*", "CONNECT", "CREATE", "UPDATE"];
    let rules = at.field("resourceRules");
    for rule in rules.items() {
        for operation in rule.field("operations").items().filter(|operation| !OPERATIONS.contains(&operation.text())) {
            rules.field("operations").not_supported(run, operation.text(), &OPERATIONS);
        }
    }
});

fn not_blank(at: &At<'_, '_>, run: &mut Run<'_>) {
    if !at.is_empty() && at.text().trim().is_empty() {
        at.invalid(run, at.text(), "must be non-empty if specified");
    }
}

fn api_version(at: &At<'_, '_>, run: &mut Run<'_>) {
    let text = at.text();
    let (group, version) = match text.matches('/').count() {
        0 => ("", text),
        1 => text.split_once('/').unwrap_or_default(),
        _ => return at.invalid(run, text, format!("unexpected GroupVersion string: {text}")),
    };
    if text.is_empty() {
        return;
    }
    let faults = if group.is_empty() { Vec::new() } else { DNS_SUBDOMAIN.faults(group) };
    if !faults.is_empty() {
        at.invalid(run, group, faults.join(","));
    }
    let faults = DNS_1035_LABEL.faults(version);
    if version.is_empty() {
        at.invalid(run, text, "version must be specified");
    } else if !faults.is_empty() {
        at.invalid(run, version, faults.join(","));
    }
}

fn param_kind(at: &At<'_, '_>, run: &mut Run<'_>) {
    let faults = DNS_1035_LABEL.faults(&at.text().to_lowercase());
    if !at.is_empty() && !faults.is_empty() {
        let detail = format!("may have mixed case, but should otherwise match: {}", faults.join(","));
        at.invalid(run, at.text(), detail);
    }
}

fn some_validations(spec: &At<'_, '_>, run: &mut Run<'_>) {
    let lists = ["validations", "auditAnnotations"].map(|field| spec.field(field));
    if lists.iter().all(At::is_empty) {
        let detail = "validations or auditAnnotations must contain at least one item";
        lists.iter().for_each(|list| list.required(run, detail));
    }
}

fn audit_annotations<'v>(at: &At<'v, '_>, run: &mut Run<'v>) {
    /// The largest number of audit annotations.
    const MAX: usize = 20;
    if at.list().len() > MAX {
        at.invalid(run, at.shown(), format!("must not have more than {MAX} auditAnnotations"));
    }
    let policy = run.object.name();
    let mut keys = HashSet::new();
    for item in at.items() {
        let key = item.field("key");
        let full = format!("{policy}/{}", key.text());
        if policy.is_empty() {
            key.invalid(run, key.text(), "requires metadata.name be non-empty");
        } else {
            for fault in QUALIFIED_NAME.faults(&full) {
                key.invalid(run, full.as_str(), fault);
            }
        }
        AUDIT_ANNOTATION.check(&item, run);
        if !keys.insert(key.text()) {
            key.duplicate(run, key.text());
        }
    }
}

fn mutation(at: &At<'_, '_>, run: &mut Run<'_>) {
    const TYPES: [&str; 2] = ["ApplyConfiguration", "JSONPatch"];
    let of = at.field("patchType");
    let (wanted, other) = match of.text() {
        "" => return of.required(run, ""),
        "JSONPatch" => (at.field("jsonPatch"), at.field("applyConfiguration")),
        "ApplyConfiguration" => (at.field("applyConfiguration"), at.field("jsonPatch")),
        unknown => return of.not_supported(run, unknown, &TYPES),
    };
    if !wanted.is_set() {
        wanted.required(run, format!("must be specified when patchType is {}", of.text()));
    } else if wanted.field("expression").text().trim().is_empty() {
        wanted.field("expression").required(run, "");
    } else {
        let made =
            if of.text() == "JSONPatch" { Type::list(Type::opaque("JSONPatch")) } else { Type::opaque("Object") };
        of_policy(&wanted.field("expression"), true, &[made], run);
    }
    if other.is_set() {
        let shown = if of.text() == "JSONPatch" { "{applyConfiguration}" } else { "{jsonPatch}" };
        other.invalid(run, shown, format!("must not be specified when patchType is {}", of.text()));
    }
}

fn name_or_selector(at: &At<'_, '_>, run: &mut Run<'_>) {
    const BOTH: &str = "name and selector are mutually exclusive";
    let (name, selector) = (at.field("name"), at.field("selector"));
    let both = !name.is_empty() && selector.is_set();
    if !name.is_empty() {
        name.complain(run, PATH_SEGMENT.faults(name.text()));
    }
    if both {
        name.forbidden(run, BOTH);
    }
    label_selector(&selector, run);
    if both {
        selector.forbidden(run, BOTH);
    }
    if name.is_empty() && !selector.is_set() {
        at.required(run, "one of name or selector must be specified");
    }
}

fn actions(at: &At<'_, '_>, run: &mut Run<'_>) {
    const KNOWN: [&str; 3] = ["Audit", "Deny", "Warn"];
    let mut seen = HashSet::new();
    for action in at.items() {
        if !KNOWN.contains(&action.text()) {
            action.not_supported(run, action.text(), &KNOWN);
        }
        if !seen.insert(action.text()) {
            action.duplicate(run, action.text());
        }
    }
    if seen.contains("Deny") && seen.contains("Warn") {
        let detail = "must not contain both Deny and Warn (repeating the same validation failure information in the API \
                      response and headers serves no purpose)";
        at.invalid(run, at.shown(), detail);
    }
    if seen.is_empty() {
        at.required(run, "at least one validation action is required");
    }
}
