//! Parsed policies and bindings.
//!
//! Expressions are compiled at the first use of a policy. Validation checked them when the policy was written. An
//! expression that still cannot be compiled fails only the requests that the policy matches.

use std::sync::OnceLock;

use keelson_cel::environments::{self, Admission};
use keelson_cel::{Environment, Program, Type};
use keelson_meta::json::Value;
use keelson_meta::label_selector::LabelSelector;

use crate::conditions::{Conditions, ConditionsOf};
use crate::matching::{MatchedPlugin, Matching};

/// A validating or mutating policy.
#[derive(Debug)]
pub(crate) struct Policy {
    pub(crate) name: String,
    pub(crate) matching: Matching,
    pub(crate) conditions: Conditions,
    /// True if requests pass when the policy fails (`failurePolicy: Ignore`).
    pub(crate) fails_open: bool,
    /// The apiVersion and kind of the parameters.
    pub(crate) params: Option<(String, String)>,
    /// True if the policy is called again after later changes.
    pub(crate) is_reinvoked: bool,
    /// True if the expressions may read managedFields.
    pub(crate) sees_owners: bool,
    /// True if the expressions may read `request`.
    pub(crate) sees_request: bool,
    spec: Value,
    compiled: OnceLock<Compiled>,
}

/// A compiled expression, or the compile error.
pub(crate) type Compilation = Result<Program, String>;

/// The expressions of a policy.
#[derive(Debug)]
pub(crate) struct Compiled {
    pub(crate) variables: Vec<(String, Compilation)>,
    pub(crate) validations: Vec<Validation>,
    pub(crate) annotations: Vec<Annotation>,
    pub(crate) mutations: Vec<Mutation>,
}

/// A validation.
#[derive(Debug)]
pub(crate) struct Validation {
    pub(crate) text: String,
    pub(crate) program: Compilation,
    pub(crate) message: Option<String>,
    pub(crate) message_program: Option<Compilation>,
    pub(crate) reason: Option<String>,
}

/// An audit annotation.
#[derive(Debug)]
pub(crate) struct Annotation {
    pub(crate) key: String,
    pub(crate) text: String,
    pub(crate) program: Compilation,
}

/// A mutation.
#[derive(Debug)]
pub(crate) struct Mutation {
    pub(crate) is_json_patch: bool,
    pub(crate) text: String,
    pub(crate) program: Compilation,
}

impl Policy {
    pub(crate) fn new(matched: MatchedPlugin, name: &str, spec: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let kind = &spec["paramKind"];
        let params = kind.is_object().then(|| (text(&kind["apiVersion"]), text(&kind["kind"])));
        let of = ConditionsOf::Policy { has_params: params.is_some() };
        Self {
            name: name.to_owned(),
            matching: Matching::new(matched, &spec["matchConstraints"], "resourceRules"),
            conditions: Conditions::new(of, &spec["matchConditions"]),
            fails_open: spec["failurePolicy"] == "Ignore",
            params,
            is_reinvoked: spec["reinvocationPolicy"] == "IfNeeded",
            sees_owners: may_see_owners(spec),
            sees_request: may_see_request(spec),
            spec: spec.clone(),
            compiled: OnceLock::new(),
        }
    }

    /// The compiled expressions.
    pub(crate) fn compiled(&self) -> &Compiled {
        self.compiled.get_or_init(|| self.compile())
    }

    fn compile(&self) -> Compiled {
        let each = |field: &str| self.spec[field].as_array().map_or(&[][..], Vec::as_slice).iter();
        let text = |value: &Value| value.as_str().unwrap_or_default().trim().to_owned();
        let patches = self.spec["mutations"].is_array();
        let mut known: Vec<(String, Type)> = Vec::new();
        let environment = |known: &[(String, Type)], authorizer| -> Environment {
            let variables = environments::variables(known.iter().cloned());
            let variables = Some(variables).filter(|_| self.spec["variables"].is_array());
            environments::admission(&Admission { params: self.params.is_some(), authorizer, variables, patches })
        };
        let compile = |text: &str, environment: &Environment| {
            Program::compile(text, environment).map_err(|error| error.to_string())
        };
        let variables = each("variables")
            .map(|variable| {
                let (name, program) =
                    (text(&variable["name"]), compile(&text(&variable["expression"]), &environment(&known, true)));
                let of = program.as_ref().map_or(Type::Dyn, |program| program.result().clone());
                known.push((name.clone(), of));
                (name, program)
            })
            .collect();
        let (all, plain) = (environment(&known, true), environment(&known, false));
        let stated = |value: &Value| Some(text(value)).filter(|text| !text.is_empty());
        let validations = each("validations").map(|validation| {
            let expression = text(&validation["expression"]);
            Validation {
                program: compile(&expression, &all),
                text: expression,
                message: stated(&validation["message"]),
                message_program: stated(&validation["messageExpression"]).map(|text| compile(&text, &plain)),
                reason: stated(&validation["reason"]),
            }
        });
        let annotations = each("auditAnnotations").map(|annotation| {
            let expression = text(&annotation["valueExpression"]);
            let program = compile(&expression, &all);
            Annotation { key: text(&annotation["key"]), text: expression, program }
        });
        let mutations = each("mutations").map(|mutation| {
            let is_json_patch = mutation["patchType"] == "JSONPatch";
            let of = if is_json_patch { &mutation["jsonPatch"] } else { &mutation["applyConfiguration"] };
            let expression = text(&of["expression"]);
            Mutation { is_json_patch, program: compile(&expression, &all), text: expression }
        });
        Compiled {
            validations: validations.collect(),
            annotations: annotations.collect(),
            mutations: mutations.collect(),
            variables,
        }
    }
}

/// Returns true if a string in the policy may be an expression that reads `request`.
fn may_see_request(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains("request"),
        Value::Array(elements) => elements.iter().any(may_see_request),
        Value::Object(members) => members.values().any(may_see_request),
        _ => false,
    }
}

/// Returns true if a string in the policy may be an expression that reads `metadata.managedFields` or the
/// resourceVersion. It may read them by name, or through the whole object or its metadata.
fn may_see_owners(value: &Value) -> bool {
    match value {
        Value::String(text) => {
            let is_whole = |name: &str| {
                text.match_indices(name).any(|(place, _)| {
                    let rest = text[place + name.len()..].trim_start();
                    !rest.starts_with(['.', '?']) && !["== null", "!= null"].iter().any(|null| rest.starts_with(null))
                })
            };
            text.contains("managedFields")
                || text.contains("resourceVersion")
                || is_whole("bject")
                || is_whole("metadata")
        }
        Value::Array(elements) => elements.iter().any(may_see_owners),
        Value::Object(members) => {
            members.iter().any(|(name, member)| name != "matchConstraints" && may_see_owners(member))
        }
        _ => false,
    }
}

/// A binding of a policy.
#[derive(Debug)]
pub(crate) struct Binding {
    pub(crate) name: String,
    pub(crate) policy: String,
    pub(crate) matching: Option<Matching>,
    pub(crate) params: Option<ParamRef>,
    pub(crate) denies: bool,
    pub(crate) warns: bool,
    pub(crate) audits: bool,
    /// The validation actions as they are in the object, for audit annotations.
    pub(crate) actions: Value,
}

/// The reference of a binding to parameter objects.
#[derive(Debug)]
pub(crate) struct ParamRef {
    pub(crate) name: String,
    pub(crate) namespace: String,
    /// The selector, for references without a name. An invalid selector matches nothing.
    pub(crate) selector: Option<Option<LabelSelector>>,
    /// True if missing parameters are an error.
    pub(crate) is_needed: bool,
}

impl Binding {
    pub(crate) fn new(matched: MatchedPlugin, name: &str, spec: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let actions = spec["validationActions"].as_array().map_or(&[][..], Vec::as_slice);
        let acts = |action: &str| actions.iter().any(|stated| stated == action);
        let matching = &spec["matchResources"];
        let params = &spec["paramRef"];
        Self {
            name: name.to_owned(),
            policy: text(&spec["policyName"]),
            matching: matching.is_object().then(|| Matching::new(matched, matching, "resourceRules")),
            params: params.is_object().then(|| ParamRef {
                name: text(&params["name"]),
                namespace: text(&params["namespace"]),
                selector: params["selector"].is_object().then(|| LabelSelector::of_object(&params["selector"])),
                is_needed: params["parameterNotFoundAction"] != "Allow",
            }),
            denies: acts("Deny"),
            warns: acts("Warn"),
            audits: acts("Audit"),
            actions: spec["validationActions"].clone(),
        }
    }
}
