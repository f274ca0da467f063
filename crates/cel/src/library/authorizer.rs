//! Authorization checks in expressions: whether a user has a permission.
//!
//! This module only builds the check. An [`Authorizer`] decides it.

use super::no_overload_of;
use crate::values::{EvalError, Outcome, Value};
use keelson_meta::go_format::quote;
use std::rc::Rc;

/// Decides authorization checks.
pub trait Authorizer: std::fmt::Debug {
    /// Decides a check.
    fn authorize(&self, question: &Question) -> Decision;
}

/// A check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Question {
    /// The namespace and name of a service account. If set, its permissions are checked instead of those of the
    /// request's user.
    pub service_account: Option<(String, String)>,
    /// The verb.
    pub verb: String,
    /// The path of a non-resource check.
    pub path: Option<String>,
    /// The resource's group.
    pub group: String,
    /// The resource.
    pub resource: String,
    /// The subresource.
    pub subresource: String,
    /// The object's namespace.
    pub namespace: String,
    /// The object's name.
    pub name: String,
    /// The field selector.
    pub field_selector: String,
    /// The label selector.
    pub label_selector: String,
}

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// True if allowed.
    pub allowed: bool,
    /// The reason.
    pub reason: String,
    /// The error.
    pub error: Option<String>,
}

/// A check that an expression is building, or its result.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // Each says what it is.
pub enum Authorization<'a> {
    Authorizer(&'a dyn Authorizer, Question),
    Path(&'a dyn Authorizer, Question),
    Group(&'a dyn Authorizer, Question),
    Resource(&'a dyn Authorizer, Question),
    Decision(Decision),
}

impl Authorization<'_> {
    /// The name of its type.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Authorizer(..) => "kubernetes.authorization.Authorizer",
            Self::Path(..) => "kubernetes.authorization.PathCheck",
            Self::Group(..) => "kubernetes.authorization.GroupCheck",
            Self::Resource(..) => "kubernetes.authorization.ResourceCheck",
            Self::Decision(_) => "kubernetes.authorization.Decision",
        }
    }
}

impl<'a> Value<'a> {
    /// The value of `authorizer`.
    pub fn authorizer(by: &'a dyn Authorizer) -> Self {
        Self::Authorization(Rc::new(Authorization::Authorizer(by, Question::default())))
    }

    /// A resource check without a verb, the value of `authorizer.requestResource`.
    pub fn resource_check(by: &'a dyn Authorizer, question: Question) -> Self {
        Self::Authorization(Rc::new(Authorization::Resource(by, question)))
    }
}

pub(super) fn find(name: &str) -> Option<super::Native> {
    Some(match name {
        "path" => |args| {
            from_authorizer(args, "path", |by, question, path| {
                let path = path.trim_end_matches('/');
                let path = if path.is_empty() { "/".to_owned() } else { path.to_owned() };
                Authorization::Path(by, Question { path: Some(path), ..question })
            })
        },
        "group" => |args| {
            from_authorizer(args, "group", |by, question, group| {
                Authorization::Group(by, Question { group: group.to_owned(), ..question })
            })
        },
        "serviceAccount" => service_account,
        "resource" => |args| match args {
            [Value::Authorization(of), Value::String(name)] => match &**of {
                Authorization::Group(by, question) => {
                    let question = Question { resource: name.to_string(), ..question.clone() };
                    Ok(Value::resource_check(*by, question))
                }
                _ => Err(no_overload_of("resource", args)),
            },
            _ => Err(no_overload_of("resource", args)),
        },
        "subresource" => |args| of_resource(args, "subresource", |question, text| question.subresource = text),
        "namespace" => |args| of_resource(args, "namespace", |question, text| question.namespace = text),
        "name" => |args| of_resource(args, "name", |question, text| question.name = text),
        "fieldSelector" => |args| of_resource(args, "fieldSelector", |question, text| question.field_selector = text),
        "labelSelector" => |args| of_resource(args, "labelSelector", |question, text| question.label_selector = text),
        "check" => check,
        "allowed" => |args| decided(args, "allowed", |decision| Value::Bool(decision.allowed)),
        "reason" => |args| decided(args, "reason", |decision| decision.reason.clone().into()),
        "errored" => |args| decided(args, "errored", |decision| Value::Bool(decision.error.is_some())),
        "error" => |args| decided(args, "error", |decision| decision.error.clone().unwrap_or_default().into()),
        _ => return None,
    })
}

fn from_authorizer<'a>(
    args: &[Value<'a>],
    name: &str,
    make: fn(&'a dyn Authorizer, Question, &str) -> Authorization<'a>,
) -> Outcome<'a> {
    if let [Value::Authorization(of), Value::String(text)] = args
        && let Authorization::Authorizer(by, question) = &**of
    {
        return Ok(Value::Authorization(Rc::new(make(*by, question.clone(), text))));
    }
    Err(no_overload_of(name, args))
}

fn service_account<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::Authorization(of), Value::String(namespace), Value::String(name)] = args else {
        return Err(no_overload_of("serviceAccount", args));
    };
    let Authorization::Authorizer(by, question) = &**of else {
        return Err(no_overload_of("serviceAccount", args));
    };
    if !keelson_meta::names::dns_subdomain_faults(name).is_empty() {
        return Err(EvalError::new(format!("Invalid service account name: {}", quote(name))));
    }
    if !keelson_meta::names::dns_label_faults(namespace).is_empty() {
        return Err(EvalError::new(format!("Invalid service account namespace: {}", quote(namespace))));
    }
    let service_account = Some((namespace.to_string(), name.to_string()));
    let question = Question { service_account, ..question.clone() };
    Ok(Value::Authorization(Rc::new(Authorization::Authorizer(*by, question))))
}

fn of_resource<'a>(args: &[Value<'a>], name: &str, set: fn(&mut Question, String)) -> Outcome<'a> {
    if let [Value::Authorization(of), Value::String(text)] = args
        && let Authorization::Resource(by, question) = &**of
    {
        let mut question = question.clone();
        set(&mut question, text.to_string());
        return Ok(Value::resource_check(*by, question));
    }
    Err(no_overload_of(name, args))
}

fn check<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    if let [Value::Authorization(of), Value::String(verb)] = args
        && let Authorization::Resource(by, question) | Authorization::Path(by, question) = &**of
    {
        let decision = by.authorize(&Question { verb: verb.to_string(), ..question.clone() });
        return Ok(Value::Authorization(Rc::new(Authorization::Decision(decision))));
    }
    Err(no_overload_of("check", args))
}

fn decided<'a>(args: &[Value<'a>], name: &str, say: fn(&Decision) -> Value<'static>) -> Outcome<'a> {
    if let [Value::Authorization(of)] = args
        && let Authorization::Decision(decision) = &**of
    {
        return Ok(say(decision));
    }
    Err(no_overload_of(name, args))
}
