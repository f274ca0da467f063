//! Validation of flow schemas and priority levels (KEP-1040).
//!
//! The mandatory objects cannot change.

#[cfg(test)]
mod tests;

use std::collections::HashSet;

use keelson_meta::json::{Value, json};

use crate::validating::at::At;
use crate::validating::formats::{DNS_LABEL, DNS_SUBDOMAIN};
use crate::validating::go_form::Form;
use crate::validating::go_form::PrintedValue::{Always as Inner, Flag, List, Maybe, Number, Plain, Text};
use crate::validating::type_rules::Rule::{self, Always, Check, Each, Forbidden, Required, With};
use crate::validating::type_rules::{Kind, Run, TypeRules, kind};

pub(crate) const KINDS: &[Kind] = &[
    kind("FlowSchema").object(&SCHEMA).below(&[("status", &STATUS)]),
    kind("PriorityLevelConfiguration").object(&LEVEL).below(&[("status", &STATUS)]),
];

const SCHEMA: TypeRules = TypeRules::new(&[
    ("spec", Always(&SCHEMA_SPEC)),
    ("spec", Check("the objects `exempt` and `catch-all` have their mandatory spec", mandatory_schema)),
    ("status", Always(&STATUS_CONTENT)),
]);

const SCHEMA_SPEC: TypeRules = TypeRules::new(&[
    ("matchingPrecedence", Check("1 to 10000; 1 only for the level `exempt`", precedence)),
    ("distinguisherMethod", Check("by namespace or by user", distinguisher)),
    (
        "priorityLevelConfiguration",
        Always(
            &const {
                TypeRules::new(&[
                    ("name", Required("must reference a priority level")),
                    ("name", Rule::Format(&DNS_SUBDOMAIN)),
                ])
            },
        ),
    ),
    ("rules", Each(&RULES)),
]);

const RULES: TypeRules = TypeRules::new(&[
    ("subjects", Required("subjects must contain at least one value")),
    (
        "subjects",
        With(
            "exactly one subject, which matches its kind",
            |at, run| at.items().for_each(|each| subject(&each, run)),
            &SUBJECT,
        ),
    ),
    (
        "",
        Check("at least one rule", |at, run| {
            if at.field("resourceRules").is_empty() && at.field("nonResourceRules").is_empty() {
                at.required(run, "at least one of resourceRules and nonResourceRules has to be non-empty");
            }
        }),
    ),
    ("resourceRules", Each(&RESOURCE_RULE)),
    ("nonResourceRules", Each(&URL_RULE)),
]);

/// The rules of each kind of subject, which has its own field.
const SUBJECT: TypeRules =
    TypeRules::new(&[("serviceAccount", Always(&ACCOUNT)), ("user", Always(&NAMED)), ("group", Always(&NAMED))]);
const NAMED: TypeRules = TypeRules::new(&[("name", Required(""))]);
const ACCOUNT: TypeRules = TypeRules::new(&[
    ("name", Required("")),
    (
        "name",
        Check("* or DNS subdomain", |at, run| {
            if !matches!(at.text(), "" | "*") {
                at.complain(run, DNS_SUBDOMAIN.faults(at.text()));
            }
        }),
    ),
    ("namespace", Required("must specify namespace for service account")),
    ("namespace", Rule::Format(&DNS_LABEL)),
]);

const RESOURCE_RULE: TypeRules = TypeRules::new(&[
    ("verbs", VERBS),
    ("apiGroups", Required("resource rules must supply at least one api group")),
    ("apiGroups", Check("`*` must be the only entry", |at, run| star_alone(at, "api groups", run))),
    ("resources", Required("resource rules must supply at least one resource")),
    ("resources", Check("`*` must be the only entry", |at, run| star_alone(at, "resources", run))),
    ("namespaces", Check("only `*`, or DNS labels; required except for cluster scope", namespaces)),
]);

const URL_RULE: TypeRules = TypeRules::new(&[("verbs", VERBS), ("nonResourceURLs", Check("only `*`, or paths", urls))]);

const VERBS: Rule = Check("only `*`, or known verbs", verbs);

const LEVEL: TypeRules = TypeRules::new(&[
    ("spec", Always(&LEVEL_SPEC)),
    ("spec", Check("the objects `exempt` and `catch-all` have their mandatory spec", mandatory_level)),
    ("status", Always(&STATUS_CONTENT)),
]);

const LEVEL_SPEC: TypeRules =
    TypeRules::new(&[("", Check("the fields of the type; Exempt only for the level `exempt`", level_type))]);

const EXEMPT: TypeRules = TypeRules::new(&[("nominalConcurrencyShares", SHARES), ("lendablePercent", PERCENT)]);

const LIMITED: TypeRules = TypeRules::new(&[
    ("nominalConcurrencyShares", SHARES),
    ("limitResponse", Check("reject, or queue with what queues need", limit_response)),
    ("lendablePercent", PERCENT),
    ("borrowingLimitPercent", Rule::Within(0, i64::MAX, "if specified, must be a non-negative integer")),
]);

const SHARES: Rule = Rule::Within(0, i64::MAX, "must be a non-negative integer");
const PERCENT: Rule = Rule::Range(0, 100);

const STATUS: TypeRules = TypeRules::new(&[("status", Always(&STATUS_CONTENT))]);
const STATUS_CONTENT: TypeRules = TypeRules::new(&[("conditions", Check("one of each type", conditions))]);

fn name_of<'v>(run: &Run<'v>) -> &'v str {
    run.object.get(&["metadata", "name"]).and_then(Value::as_str).unwrap_or_default()
}

fn precedence(at: &At<'_, '_>, run: &mut Run<'_>) {
    const MOST: i64 = 10_000;
    let number = at.int();
    if number <= 0 {
        at.invalid(run, number, "must be a positive value");
    }
    if number > MOST {
        at.invalid(run, number, format!("must not be greater than {MOST}"));
    }
    if number == 1 && name_of(run) != "exempt" {
        at.invalid(run, number, "only the schema named 'exempt' may have matchingPrecedence 1");
    }
}

fn distinguisher(at: &At<'_, '_>, run: &mut Run<'_>) {
    const KNOWN: [&str; 2] = ["ByNamespace", "ByUser"];
    let kind = at.field("type");
    if at.is_set() && !KNOWN.contains(&kind.text()) {
        kind.not_supported(run, DISTINGUISHER_FORM.print(at.value), &KNOWN);
    }
}

fn subject<'v>(at: &At<'v, '_>, run: &mut Run<'v>) {
    // The order is that of upstream's errors: first the required field, then the forbidden ones.
    let kinds = [("ServiceAccount", "serviceAccount", &ACCOUNT), ("User", "user", &NAMED), ("Group", "group", &NAMED)];
    let kind = at.field("kind");
    let Some((_, own, type_rules)) = kinds.iter().find(|(known, _, _)| *known == kind.text()) else {
        return kind.not_supported(run, kind.text(), &["Group", "ServiceAccount", "User"]);
    };
    let content = at.field(own);
    if content.is_set() {
        type_rules.check(&content, run);
    } else {
        content.required(run, format!("{own} is required when subject kind is '{}'", kind.text()));
    }
    for (other, field, _) in kinds.iter().filter(|(_, field, _)| field != own) {
        let detail = format!("{field} is forbidden when subject kind is not '{other}'");
        let field = at.field(field);
        if field.is_set() {
            field.forbidden(run, detail);
        }
    }
}

fn has_star(at: &At<'_, '_>) -> bool {
    at.list().iter().any(|item| item == "*")
}

fn star_alone(at: &At<'_, '_>, what: &str, run: &mut Run<'_>) {
    if at.list().len() > 1 && has_star(at) {
        at.invalid(run, at.shown(), format!("if '*' is present, must not specify other {what}"));
    }
}

fn verbs(at: &At<'_, '_>, run: &mut Run<'_>) {
    const KNOWN: [&str; 9] =
        ["create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"];
    if at.is_empty() {
        at.required(run, "verbs must contain at least one value");
    } else if has_star(at) {
        star_alone(at, "verbs", run);
    } else if at.items().any(|verb| !KNOWN.contains(&verb.text())) {
        at.not_supported(run, at.shown(), &KNOWN);
    }
}

fn namespaces(at: &At<'_, '_>, run: &mut Run<'_>) {
    let cluster = at.parent().is_some_and(|rule| rule.field("clusterScope").is_true());
    if at.is_empty() && !cluster {
        at.required(run, "resource rules that are not cluster scoped must supply at least one namespace");
    } else if has_star(at) {
        star_alone(at, "namespaces", run);
    } else {
        for namespace in at.items() {
            for fault in DNS_LABEL.faults(namespace.text()) {
                let detail = format!("each member of this list must be '*' or a DNS-1123 label; {fault}");
                namespace.invalid(run, namespace.text(), detail);
            }
        }
    }
}

fn urls(at: &At<'_, '_>, run: &mut Run<'_>) {
    if at.is_empty() {
        at.required(run, "nonResourceURLs must contain at least one value");
    } else if has_star(at) {
        star_alone(at, "non-resource URLs", run);
    } else {
        for url in at.items() {
            if let Some(fault) = url_fault(url.text()) {
                url.invalid(run, url.text(), fault);
            }
        }
    }
}

fn url_fault(path: &str) -> Option<&'static str> {
    match path {
        "" => Some("must not be empty"),
        "/" => None,
        _ if !path.starts_with('/') => Some("must start with slash"),
        _ if path.contains(' ') => Some("must not contain white-space"),
        _ if path.contains("//") => Some("must not contain double slash"),
        _ => match path.matches('*').count() {
            0 => None,
            1 if path.ends_with("/*") => None,
            _ => Some("wildcard can only do suffix matching"),
        },
    }
}

fn level_type<'v>(spec: &At<'v, '_>, run: &mut Run<'v>) {
    const NOT_LIMITED: Rule = Forbidden("must be nil if the type is not Limited");
    const NOT_EXEMPT: Rule = Forbidden("must be nil if the type is Limited");
    let [kind, exempt, limited] = ["type", "exempt", "limited"].map(|name| spec.field(name));
    if (name_of(run) == "exempt") != (kind.text() == "Exempt") {
        kind.invalid(run, kind.text(), "must be 'Exempt' if and only if `name` is 'exempt'");
    }
    match kind.text() {
        "Exempt" => {
            NOT_LIMITED.check(&limited, run);
            Rule::In(&EXEMPT).check(&exempt, run);
        }
        "Limited" => {
            NOT_EXEMPT.check(&exempt, run);
            if limited.is_set() {
                LIMITED.check(&limited, run);
            } else {
                limited.required(run, "must not be empty when type is Limited");
            }
        }
        other => kind.not_supported(run, other, &["Exempt", "Limited"]),
    }
}

fn limit_response(at: &At<'_, '_>, run: &mut Run<'_>) {
    let (kind, queuing) = (at.field("type"), at.field("queuing"));
    match kind.text() {
        "Reject" => {
            if queuing.is_set() {
                queuing.forbidden(run, "must be nil if limited.limitResponse.type is not Limited");
            }
        }
        "Queue" if queuing.is_set() => queues(&queuing, run),
        "Queue" => queuing.required(run, "must not be empty if limited.limitResponse.type is Limited"),
        other => kind.not_supported(run, other, &["Queue", "Reject"]),
    }
}

fn queues(at: &At<'_, '_>, run: &mut Run<'_>) {
    const QUEUES_MAX: i64 = 10_000_000;
    /// The number of hash bits from which a hand of queues is dealt.
    const HASH_BITS: i64 = 60;
    let [length, queues, hand] = ["queueLengthLimit", "queues", "handSize"].map(|name| at.field(name));
    let (deck, size) = (queues.int(), hand.int());
    if length.int() <= 0 {
        length.invalid(run, length.int(), "must be positive");
    }
    if deck <= 0 {
        queues.invalid(run, deck, "must be positive");
    } else if deck > QUEUES_MAX {
        queues.invalid(run, deck, format!("must not be greater than {QUEUES_MAX}"));
    }
    if size <= 0 {
        hand.invalid(run, size, "must be positive");
    } else if size > deck {
        hand.invalid(run, size, format!("should not be greater than queues ({deck})"));
    } else if ((deck as f64).log2() * size as f64).ceil() > HASH_BITS as f64 {
        let detail = format!(
            "required entropy bits of deckSize {deck} and handSize {size} should not be greater than {HASH_BITS}"
        );
        hand.invalid(run, size, detail);
    }
}

fn conditions(at: &At<'_, '_>, run: &mut Run<'_>) {
    let mut seen = HashSet::new();
    for condition in at.items() {
        let kind = condition.field("type");
        if !seen.insert(kind.text()) {
            kind.duplicate(run, kind.text());
        }
        if kind.is_empty() {
            kind.required(run, "must not be empty");
        }
    }
}

fn mandatory_schema(spec: &At<'_, '_>, run: &mut Run<'_>) {
    let name = name_of(run);
    let (precedence, method, groups): (_, _, &[&str]) = match name {
        "exempt" => (1, Value::Null, &["system:masters"]),
        "catch-all" => (10_000, json!({"type": "ByUser"}), &["system:unauthenticated", "system:authenticated"]),
        _ => return,
    };
    let subjects: Vec<Value> = groups.iter().map(|group| json!({"kind": "Group", "group": {"name": group}})).collect();
    let all = json!(["*"]);
    let expected = json!({
        "matchingPrecedence": precedence,
        "priorityLevelConfiguration": {"name": name},
        "distinguisherMethod": method,
        "rules": [{
            "subjects": subjects,
            "resourceRules": [{"verbs": all, "apiGroups": all, "resources": all, "clusterScope": true, "namespaces": all}],
            "nonResourceRules": [{"verbs": all, "nonResourceURLs": all}],
        }],
    });
    let shown = SCHEMA_FORM.print(spec.value);
    if shown != SCHEMA_FORM.print(&expected) {
        spec.invalid(run, shown, format!("spec of '{name}' must equal the fixed value"));
    }
}

fn mandatory_level(spec: &At<'_, '_>, run: &mut Run<'_>) {
    let name = name_of(run);
    let shown = LEVEL_FORM.print(spec.value);
    let (expected, except) = match name {
        // An exempt level may have a setting for lending.
        "exempt" => (json!({"type": "Exempt", "exempt": spec.value.get("exempt")}), " except the 'spec.exempt' field"),
        "catch-all" => {
            let limited =
                json!({"nominalConcurrencyShares": 5, "lendablePercent": 0, "limitResponse": {"type": "Reject"}});
            (json!({"type": "Limited", "limited": limited}), "")
        }
        _ => return,
    };
    if shown != LEVEL_FORM.print(&expected) {
        spec.invalid(run, shown, format!("spec of '{name}'{except} must equal the fixed value"));
    }
}

static SCHEMA_FORM: Form = Form(&[
    ("PriorityLevelConfiguration", "priorityLevelConfiguration", Inner(&NAME_FORM)),
    ("MatchingPrecedence", "matchingPrecedence", Number),
    ("DistinguisherMethod", "distinguisherMethod", Maybe(&DISTINGUISHER_FORM)),
    ("Rules", "rules", List(&RULES_FORM)),
]);
static DISTINGUISHER_FORM: Form = Form(&[("Type", "type", Text)]);
static NAME_FORM: Form = Form(&[("Name", "name", Text)]);
static RULES_FORM: Form = Form(&[
    ("Subjects", "subjects", List(&SUBJECT_FORM)),
    ("ResourceRules", "resourceRules", List(&RESOURCE_RULE_FORM)),
    ("NonResourceRules", "nonResourceRules", List(&URL_RULE_FORM)),
]);
static SUBJECT_FORM: Form = Form(&[
    ("Kind", "kind", Text),
    ("User", "user", Maybe(&NAME_FORM)),
    ("Group", "group", Maybe(&NAME_FORM)),
    ("ServiceAccount", "serviceAccount", Maybe(&ACCOUNT_FORM)),
]);
static ACCOUNT_FORM: Form = Form(&[("Namespace", "namespace", Text), ("Name", "name", Text)]);
static RESOURCE_RULE_FORM: Form = Form(&[
    ("Verbs", "verbs", Plain),
    ("APIGroups", "apiGroups", Plain),
    ("Resources", "resources", Plain),
    ("ClusterScope", "clusterScope", Flag),
    ("Namespaces", "namespaces", Plain),
]);
static URL_RULE_FORM: Form = Form(&[("Verbs", "verbs", Plain), ("NonResourceURLs", "nonResourceURLs", Plain)]);
static LEVEL_FORM: Form = Form(&[
    ("Type", "type", Text),
    ("Limited", "limited", Maybe(&LIMITED_FORM)),
    ("Exempt", "exempt", Maybe(&EXEMPT_FORM)),
]);
static LIMITED_FORM: Form = Form(&[
    ("NominalConcurrencyShares", "nominalConcurrencyShares", Number),
    ("LimitResponse", "limitResponse", Inner(&RESPONSE_FORM)),
    ("LendablePercent", "lendablePercent", Plain),
    ("BorrowingLimitPercent", "borrowingLimitPercent", Plain),
]);
static EXEMPT_FORM: Form = Form(&[
    ("NominalConcurrencyShares", "nominalConcurrencyShares", Plain),
    ("LendablePercent", "lendablePercent", Plain),
]);
static RESPONSE_FORM: Form = Form(&[("Type", "type", Text), ("Queuing", "queuing", Maybe(&QUEUING_FORM))]);
static QUEUING_FORM: Form = Form(&[
    ("Queues", "queues", Number),
    ("HandSize", "handSize", Number),
    ("QueueLengthLimit", "queueLengthLimit", Number),
]);
