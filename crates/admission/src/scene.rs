//! The values of the variables of admission expressions, in the order of their declarations in `cel`.
//!
//! Objects are borrowed, not copied. The values are not `Send`, so a scene exists only between two awaits.
//! Authorization checks in an expression must complete without waiting.

use futures::FutureExt as _;
use keelson_access::{Attributes, ResourceAttributes, User};
use keelson_cel::environments::{ADMISSION_REQUEST, NAMESPACE};
use keelson_cel::library::authorizer::{Authorizer, Decision, Question};
use keelson_cel::{Value as Cel, values};
use keelson_meta::Object;
use keelson_meta::json::Value;
use keelson_registry::{AdmissionAttributes, Caller};

use crate::matching::Endpoint;

/// The variables of a request.
#[derive(Clone, Copy)]
pub(crate) struct PolicyVariables<'a> {
    pub(crate) object: Option<&'a Object>,
    pub(crate) old: Option<&'a Object>,
    /// The variable `request`, from [`crate::request::for_expressions`].
    pub(crate) request: &'a Value,
    pub(crate) rights: &'a Rights<'a>,
}

impl<'a> PolicyVariables<'a> {
    /// The variables of a match condition. They also come first for a policy. Policies also get the namespace of the
    /// object.
    pub(crate) fn variables(&self, authorizer: bool, namespace: Option<&'a Object>) -> Vec<Cel<'a>> {
        let shown = |object: Option<&'a Object>| object.map_or(Cel::Null, |object| values::from_map(&object.0, None));
        let request = values::from_tree(self.request, Some(&ADMISSION_REQUEST));
        let mut variables = vec![shown(self.object), shown(self.old), request];
        if authorizer {
            variables.push(Cel::authorizer(self.rights));
            variables.push(Cel::resource_check(self.rights, self.rights.own.clone()));
        }
        variables.push(namespace.map_or(Cel::Null, |object| values::from_map(&object.0, Some(&NAMESPACE))));
        variables
    }
}

/// The variable `authorizer`, for the user of the request.
#[derive(Debug)]
pub(crate) struct Rights<'a> {
    caller: &'a Caller,
    /// The authorization check for the request itself.
    own: Question,
}

impl<'a> Rights<'a> {
    pub(crate) fn new(attributes: &AdmissionAttributes<'a>, endpoint: &Endpoint) -> Self {
        let own = Question {
            group: endpoint.group.clone(),
            resource: endpoint.resource.clone(),
            subresource: attributes.subresource().to_owned(),
            namespace: crate::matching::namespace_of(attributes).unwrap_or_default().to_owned(),
            name: attributes.name.to_owned(),
            ..Question::default()
        };
        Self { caller: attributes.caller, own }
    }
}

impl Authorizer for Rights<'_> {
    fn authorize(&self, question: &Question) -> Decision {
        let account = question.service_account.as_ref();
        let account = account.map(|(namespace, name)| User::service_account(namespace, name));
        let user = account.as_ref().unwrap_or(self.caller.user());
        let stated = |text: &'_ String| (!text.is_empty()).then(|| text.clone());
        let (subresource, namespace, name) =
            (stated(&question.subresource), stated(&question.namespace), stated(&question.name));
        let (labels, fields) = (stated(&question.label_selector), stated(&question.field_selector));
        let asked = match &question.path {
            Some(path) => Attributes::Path { verb: &question.verb, path },
            None => Attributes::Resource(ResourceAttributes {
                verb: &question.verb,
                group: &question.group,
                version: "*",
                resource: &question.resource,
                subresource: subresource.as_deref(),
                namespace: namespace.as_deref(),
                name: name.as_deref(),
                label_selector: labels.as_deref(),
                field_selector: fields.as_deref(),
            }),
        };
        match self.caller.authorizer().authorize(user, &asked).now_or_never() {
            Some(verdict) => {
                let error = verdict.error.as_ref().map(ToString::to_string);
                Decision { allowed: verdict.is_allowed(), reason: verdict.reason.to_string(), error }
            }
            None => Decision { error: Some("the authorizer did not answer at once".to_owned()), ..Decision::default() },
        }
    }
}
