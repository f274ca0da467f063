//! Options of a deletion, from the query or from the body.
//!
//! As upstream, the query is ignored if there is a body.

use crate::json::{Value, ValueKind};

use super::query::Query;
use super::write::dry_run_error;
use crate::error::ApiError;
use crate::field_error::FieldError;
use crate::object::Object;

const POLICY_FIELD: &str = "propagationPolicy";
const READ_ERROR_FIELD: &str = "ignoreStoreReadErrorWithClusterBreakingPotential";

/// The options of a deletion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// `dryRun`: performs all steps except the write.
    pub dry_run: bool,
    /// `gracePeriodSeconds`. Absent for the kind's default, 0 for immediate deletion.
    pub grace_period_seconds: Option<i64>,
    /// `preconditions`.
    pub preconditions: Preconditions,
    /// `propagationPolicy`.
    pub propagation_policy: Option<PropagationPolicy>,
    /// `orphanDependents`, the deprecated form of `propagationPolicy`.
    pub orphan_dependents: Option<bool>,
    /// `ignoreStoreReadErrorWithClusterBreakingPotential`: deletes the object even if it can't be read.
    pub ignore_store_read_error: bool,
}

/// The conditions for a deletion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preconditions {
    /// The required UID.
    pub uid: Option<String>,
    /// The required resourceVersion.
    pub resource_version: Option<String>,
}

/// The treatment of dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PropagationPolicy {
    /// Dependents lose their owner reference and stay.
    Orphan,
    /// Dependents are deleted after the owner.
    Background,
    /// Dependents are deleted before the owner.
    Foreground,
}

impl DeleteOptions {
    /// Reads the options of a deletion from the body, or from the query if there is no body.
    ///
    /// # Errors
    /// 400 for values of the wrong type, 422 for values and combinations that are not allowed.
    pub fn parse(query: &Query<'_>, body: Option<&Object>) -> Result<Self, ApiError> {
        match body {
            Some(body) => Self::from_object(body),
            None => Raw::from_query(query)?.check(),
        }
    }

    /// Reads the options in an object.
    ///
    /// # Errors
    /// 400 for fields of wrong types, 422 for values that are not allowed.
    pub fn from_object(object: &Object) -> Result<Self, ApiError> {
        Raw::from_body(object)?.check()
    }
}

/// The options before validation.
#[derive(Default)]
struct Raw {
    dry_run: Vec<String>,
    grace_period_seconds: Option<i64>,
    preconditions: Option<Preconditions>,
    propagation_policy: Option<String>,
    orphan_dependents: Option<bool>,
    ignore_store_read_error: bool,
}

impl Raw {
    fn from_query(query: &Query<'_>) -> Result<Self, ApiError> {
        let uid = query.text("uid");
        Ok(Self {
            dry_run: query.all("dryRun").map(str::to_owned).collect(),
            grace_period_seconds: query.integer("gracePeriodSeconds")?,
            preconditions: uid.map(|uid| Preconditions { uid: Some(uid), resource_version: None }),
            propagation_policy: query.get(POLICY_FIELD).map(str::to_owned),
            orphan_dependents: query.flag("orphanDependents"),
            ignore_store_read_error: query.flag(READ_ERROR_FIELD).unwrap_or(false),
        })
    }

    fn from_body(body: &Object) -> Result<Self, ApiError> {
        if body.kind().is_some_and(|kind| kind != "DeleteOptions") {
            return Err(ApiError::BadRequest("decoded object cannot be converted to DeleteOptions".to_owned()));
        }
        let mut raw = Self::default();
        for (field, value) in body.0.iter().filter(|(_, value)| !value.is_null()) {
            match field {
                "dryRun" => raw.dry_run = texts(field, value)?,
                "gracePeriodSeconds" => raw.grace_period_seconds = Some(integer(field, value)?),
                "preconditions" => raw.preconditions = Some(preconditions(value)?),
                POLICY_FIELD => raw.propagation_policy = Some(text(field, value, "v1.DeletionPropagation")?),
                "orphanDependents" => raw.orphan_dependents = Some(boolean(field, value)?),
                READ_ERROR_FIELD => raw.ignore_store_read_error = boolean(field, value)?,
                _ => {}
            }
        }
        Ok(raw)
    }

    fn check(self) -> Result<DeleteOptions, ApiError> {
        let mut errors = Vec::new();
        let policy = self.propagation_policy.as_deref();
        if let (Some(policy), Some(_)) = (policy, self.orphan_dependents) {
            let detail = "orphanDependents and deletionPropagation cannot be both set";
            errors.push(FieldError::invalid(POLICY_FIELD, policy, detail));
        }
        let propagation_policy = policy.and_then(known_policy);
        if let (Some(policy), None) = (policy, propagation_policy) {
            let known = ["Foreground", "Background", "Orphan", "nil"];
            errors.push(FieldError::not_supported(POLICY_FIELD, policy, &known));
        }
        let dry_run: Vec<&str> = self.dry_run.iter().map(String::as_str).collect();
        errors.extend(dry_run_error(&dry_run));
        errors.extend(self.read_error_conflicts());
        super::check("DeleteOptions", errors)?;
        Ok(DeleteOptions {
            dry_run: !self.dry_run.is_empty(),
            grace_period_seconds: self.grace_period_seconds,
            preconditions: self.preconditions.unwrap_or_default(),
            propagation_policy,
            orphan_dependents: self.orphan_dependents,
            ignore_store_read_error: self.ignore_store_read_error,
        })
    }

    /// Upstream allows no other option beside this one, because it is dangerous.
    fn read_error_conflicts(&self) -> Vec<FieldError> {
        if !self.ignore_store_read_error {
            return Vec::new();
        }
        let others = [
            (!self.dry_run.is_empty(), "dryRun"),
            (self.propagation_policy.is_some(), POLICY_FIELD),
            (self.orphan_dependents.is_some(), "orphanDependents"),
            (self.grace_period_seconds.is_some(), "gracePeriodSeconds"),
            (self.preconditions.is_some(), "preconditions"),
        ];
        let given = others.into_iter().filter(|(given, _)| *given);
        given
            .map(|(_, other)| {
                FieldError::invalid(READ_ERROR_FIELD, true, format!("cannot be set together with .{other}"))
            })
            .collect()
    }
}

fn known_policy(text: &str) -> Option<PropagationPolicy> {
    match text {
        "Orphan" => Some(PropagationPolicy::Orphan),
        "Background" => Some(PropagationPolicy::Background),
        "Foreground" => Some(PropagationPolicy::Foreground),
        _ => None,
    }
}

fn preconditions(value: &Value) -> Result<Preconditions, ApiError> {
    let Value::Object(map) = value else {
        return Err(wrong_type("DeleteOptions.preconditions", value, "v1.Preconditions"));
    };
    let read = |field: &str, go_type: &str| match map.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.to_string())),
        Some(other) => Err(wrong_type(&format!("Preconditions.preconditions.{field}"), other, go_type)),
    };
    Ok(Preconditions { uid: read("uid", "types.UID")?, resource_version: read("resourceVersion", "string")? })
}

fn text(field: &str, value: &Value, go_type: &str) -> Result<String, ApiError> {
    value.as_str().map(str::to_owned).ok_or_else(|| wrong_type(&format!("DeleteOptions.{field}"), value, go_type))
}

fn texts(field: &str, value: &Value) -> Result<Vec<String>, ApiError> {
    match value {
        Value::Array(items) => items.iter().map(|item| text(field, item, "string")).collect(),
        other => Err(wrong_type(&format!("DeleteOptions.{field}"), other, "[]string")),
    }
}

fn integer(field: &str, value: &Value) -> Result<i64, ApiError> {
    value.as_i64().ok_or_else(|| wrong_type(&format!("DeleteOptions.{field}"), value, "int64"))
}

fn boolean(field: &str, value: &Value) -> Result<bool, ApiError> {
    value.as_bool().ok_or_else(|| wrong_type(&format!("DeleteOptions.{field}"), value, "bool"))
}

fn wrong_type(field: &str, value: &Value, go_type: &str) -> ApiError {
    ApiError::BadRequest(crate::go_format::type_error(field, &ValueKind::from_value(value), go_type))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::json;

    fn check(query: &str, body: Option<Value>, expected: Result<DeleteOptions, &str>) {
        let body = body.map(|body| Object::from_value(body).expect("an object"));
        let parsed = DeleteOptions::parse(&Query::parse(query), body.as_ref()).map_err(|error| error.to_string());
        assert_eq!(parsed, expected.map_err(str::to_owned), "{query} {body:?}");
    }

    #[test]
    fn the_query_is_read_when_there_is_no_body() {
        let expected = DeleteOptions {
            dry_run: true,
            grace_period_seconds: Some(0),
            propagation_policy: Some(PropagationPolicy::Foreground),
            ..DeleteOptions::default()
        };
        check("dryRun=All&gracePeriodSeconds=0&propagationPolicy=Foreground", None, Ok(expected));
        check("", None, Ok(DeleteOptions::default()));
    }

    #[test]
    fn the_body_replaces_the_query() {
        let body = json!({"kind": "DeleteOptions", "preconditions": {"uid": "u", "resourceVersion": "5"}, "more": 1});
        let preconditions = Preconditions { uid: Some("u".into()), resource_version: Some("5".into()) };
        check("dryRun=All", Some(body), Ok(DeleteOptions { preconditions, ..DeleteOptions::default() }));
    }

    #[test]
    fn faults_have_upstream_texts() {
        check("gracePeriodSeconds=x", None, Err("strconv.ParseInt: parsing \"x\": invalid syntax"));
        check(
            "propagationPolicy=Never",
            None,
            Err(
                "DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Unsupported value: \"Never\": supported \
                 values: \"Foreground\", \"Background\", \"Orphan\", \"nil\"",
            ),
        );
        check(
            "propagationPolicy=Orphan&orphanDependents=true",
            None,
            Err("DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Invalid value: \"Orphan\": \
                 orphanDependents and deletionPropagation cannot be both set"),
        );
        check(
            "",
            Some(json!({"ignoreStoreReadErrorWithClusterBreakingPotential": true, "gracePeriodSeconds": 1})),
            Err(
                "DeleteOptions.meta.k8s.io \"\" is invalid: ignoreStoreReadErrorWithClusterBreakingPotential: Invalid \
                 value: true: cannot be set together with .gracePeriodSeconds",
            ),
        );
    }

    #[test]
    fn wrong_types_in_the_body_are_refused() {
        check(
            "",
            Some(json!({"gracePeriodSeconds": "1"})),
            Err("json: cannot unmarshal string into Go struct field DeleteOptions.gracePeriodSeconds of type int64"),
        );
        check(
            "",
            Some(json!({"preconditions": {"uid": 1}})),
            Err("json: cannot unmarshal number into Go struct field Preconditions.preconditions.uid of type types.UID"),
        );
        check("", Some(json!({"kind": "Pod"})), Err("decoded object cannot be converted to DeleteOptions"));
    }
}
