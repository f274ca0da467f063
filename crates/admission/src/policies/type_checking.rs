//! Type checks of validating policies against the kinds that they match. The results are warnings in the status of the
//! policy: fields that do not exist, and values of the wrong type. They refuse nothing.
//!
//! Like upstream, validations and message expressions are checked against each kind that a rule names. Texts are
//! upstream's.

use std::collections::BTreeMap;
use std::sync::Arc;

use keelson_cel::decl::Decl;
use keelson_cel::environments::Admission;
use keelson_cel::{CompileError, Environment, Program, Type, environments};
use keelson_meta::GroupVersion;
use keelson_meta::json::{Value, json};
use keelson_registry::{KindVersion, ServedApis};

use super::declared;

/// The largest number of kinds of one rule. At this number, the other kinds and rules are skipped.
const MOST_KINDS: usize = 10;

/// Group, version and kind, in the order of the warnings.
type Kind = (String, String, String);

/// The warnings about expressions of a policy, for its status (`status.typeChecking.expressionWarnings`).
///
/// Cost: some milliseconds for each kind.
pub(crate) fn warnings(surface: &Arc<ServedApis>, spec: &Value) -> Vec<Value> {
    let kinds = kinds(surface, spec);
    let params = params(surface, spec);
    let params = params.as_ref();
    let environments: Vec<(Kind, Environment)> = kinds
        .into_iter()
        .filter_map(|(kind, version)| {
            let object = declared::of_kind(&version)?;
            Some((kind, environment(spec, &object, params)))
        })
        .collect();
    let mut warnings = Vec::new();
    for (place, validation) in list(&spec["validations"]).iter().enumerate() {
        for field in ["expression", "messageExpression"] {
            let Some(expression) = validation[field].as_str().filter(|text| !text.is_empty()) else { continue };
            let messages: Vec<String> =
                environments.iter().filter_map(|(kind, with)| fault(kind, expression, with)).collect();
            if !messages.is_empty() {
                let path = format!("spec.validations[{place}].{field}");
                warnings.push(json!({ "fieldRef": path, "warning": messages.join("\n") }));
            }
        }
    }
    warnings
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The type error of an expression for a kind.
fn fault((group, version, kind): &Kind, expression: &str, environment: &Environment) -> Option<String> {
    match Program::compile(expression, environment) {
        Err(CompileError::Invalid(why)) => Some(format!("{group}/{version}, Kind={kind}: {why}\n")),
        Ok(_) | Err(CompileError::Instantiation(_) | CompileError::Result(_)) => None,
    }
}

/// The type of a policy's parameters: `None` if it has none, a dynamic type if their kind is unknown.
fn params(surface: &Arc<ServedApis>, spec: &Value) -> Option<Arc<Decl>> {
    let kind = &spec["paramKind"];
    let version = GroupVersion::parse(kind["apiVersion"].as_str()?)?;
    let served = surface.by_kind(&version.group, kind["kind"].as_str()?);
    let served = served.and_then(|served| served.version(&version.version));
    Some(served.and_then(|version| declared::of_kind(version)).unwrap_or_else(Decl::any))
}

/// The CEL environment of a policy, as in an evaluation, but with the type of the object declared.
fn environment(spec: &Value, object: &Arc<Decl>, params: Option<&Arc<Decl>>) -> Environment {
    let asked =
        environments::admission(&Admission { params: params.is_some(), authorizer: true, ..Admission::default() });
    let plain = asked.variables().iter().fold(Environment::kubernetes(), |environment, variable| {
        let declared = match (variable.name.as_str(), params) {
            ("object" | "oldObject", _) => Some(object),
            ("params", Some(params)) => Some(params),
            _ => variable.decl.as_ref(),
        };
        match declared {
            Some(declared) => environment.with_declared(&variable.name, declared),
            None => environment.with(&variable.name, variable.ty.clone()),
        }
    });
    let (mut known, mut all) = (Vec::new(), plain.clone());
    for variable in list(&spec["variables"]) {
        let (name, text) = (variable["name"].as_str(), variable["expression"].as_str());
        let of = Program::compile(text.unwrap_or_default(), &all)
            .map_or(Type::Dyn, |program| declared_type(program.result()));
        known.push((name.unwrap_or_default().to_owned(), of));
        all = plain.clone().with_declared("variables", &environments::variables(known.iter().cloned()));
    }
    all
}

/// The declared type of a variable. Like upstream, only scalars, and lists and maps of them, keep their type.
fn declared_type(of: &Type) -> Type {
    match of {
        Type::Null
        | Type::Bool
        | Type::Int
        | Type::Uint
        | Type::Double
        | Type::String
        | Type::Bytes
        | Type::Duration
        | Type::Timestamp => of.clone(),
        Type::List(element) => Type::list(declared_type(element)),
        Type::Map(of) => Type::map(declared_type(&of.0), declared_type(&of.1)),
        _ => Type::Dyn,
    }
}

/// The kinds that the rules of a policy name. Wildcards and subresources are skipped.
fn kinds(surface: &Arc<ServedApis>, spec: &Value) -> BTreeMap<Kind, Arc<KindVersion>> {
    let mut kinds = BTreeMap::new();
    for rule in list(&spec["matchConstraints"]["resourceRules"]) {
        let named = |field: &str| {
            let mut names: Vec<&str> = list(&rule[field]).iter().filter_map(Value::as_str).collect();
            names.sort_unstable();
            names
        };
        let (groups, versions) = (named("apiGroups"), named("apiVersions"));
        if groups.iter().chain(&versions).any(|name| name.contains('*')) {
            continue;
        }
        let resources: Vec<&str> = named("resources").into_iter().filter(|name| !name.contains(['*', '/'])).collect();
        let mut count = 0;
        for (group, version) in groups.iter().flat_map(|group| versions.iter().map(move |version| (group, version))) {
            for plural in &resources {
                let Some(target) = surface.lookup(group, version, plural) else { continue };
                let of = target.version.kind();
                kinds.insert((of.group.clone(), of.version.clone(), of.kind.clone()), target.version.clone());
                count += 1;
                if count == MOST_KINDS {
                    return kinds;
                }
            }
        }
    }
    kinds
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks a policy about resources (`<group>/<version>/<plural>`). `more` is added to its specification.
    fn check(resources: &[&str], more: &Value, expected: &[(&str, &str)]) {
        let rules: Vec<Value> = resources
            .iter()
            .map(|resource| {
                let parts: Vec<&str> = resource.splitn(3, '/').collect();
                json!({ "apiGroups": [parts[0]], "apiVersions": [parts[1]], "resources": [parts[2]] })
            })
            .collect();
        let mut spec = json!({ "matchConstraints": { "resourceRules": rules } });
        for (name, value) in more.as_object().unwrap() {
            spec[name] = value.clone();
        }
        let found = warnings(&keelson_builtin::surface(), &spec);
        let text = |warning: &Value, field: &str| warning[field].as_str().unwrap().to_owned();
        let found: Vec<(String, String)> =
            found.iter().map(|warning| (text(warning, "fieldRef"), text(warning, "warning"))).collect();
        let expected: Vec<(String, String)> =
            expected.iter().map(|(field, told)| ((*field).to_owned(), (*told).to_owned())).collect();
        assert_eq!(found, expected, "{more:?}");
    }

    const DEPLOYMENTS: &[&str] = &["apps/v1/deployments"];
    const FIRST: &str = "spec.validations[0].expression";

    fn validations(expressions: &[&str]) -> Value {
        let stated: Vec<Value> = expressions.iter().map(|expression| json!({ "expression": expression })).collect();
        json!({ "validations": stated })
    }

    #[test]
    fn expressions_are_checked_against_the_kinds_that_rules_name() {
        let one = |resources: &[&str], expression: &str, expected: &str| {
            let expected = [(FIRST, expected)];
            check(resources, &validations(&[expression]), if expected[0].1.is_empty() { &[] } else { &expected });
        };
        one(DEPLOYMENTS, "object.spec.replicas > 1", "");
        let message = "apps/v1, Kind=Deployment: ERROR: <input>:1:22: found no matching overload for '_>_' applied to '(int, string)'\n | object.spec.replicas > '1'\n | .....................^\n";
        one(DEPLOYMENTS, "object.spec.replicas > '1'", message);
        let message = "apps/v1, Kind=Deployment: ERROR: <input>:1:12: undefined field 'serviceName'\n | object.spec.serviceName == 'x'\n | ...........^\n";
        one(&["apps/v1/statefulsets", "apps/v1/deployments"], "object.spec.serviceName == 'x'", message);
        let message = "apps/v1, Kind=Deployment: ERROR: <input>:1:15: undefined field 'nope'\n | oldObject.spec.nope == 1\n | ..............^\n";
        one(DEPLOYMENTS, "oldObject.spec.nope == 1", message);
        let message = "apps/v1, Kind=Deployment: ERROR: <input>:1:29: found no matching overload for '_==_' applied to '(string, int)'\n | object.metadata.labels['a'] == 1\n | ............................^\n";
        one(DEPLOYMENTS, "object.metadata.labels['a'] == 1", message);
        let message = "/v1, Kind=ConfigMap: ERROR: <input>:1:15: found no matching overload for '_==_' applied to '(string, int)'\n | object.data.a == 1\n | ..............^\n";
        one(&["/v1/configmaps"], "object.data.a == 1", message);
        let message = "/v1, Kind=Pod: ERROR: <input>:1:42: undefined field 'limits'\n | object.spec.containers.all(c, c.resources.limits['cpu'] == 5)\n | .........................................^\n";
        one(&["/v1/pods"], "object.spec.containers.all(c, c.resources.limits['cpu'] == 5)", message);
        one(DEPLOYMENTS, "object.spec.strategy.rollingUpdate.maxSurge == 1", "");
        one(&["*/*/*"], "object.spec.nope == 1", "");
        one(&["apps/v1/deployments/scale"], "object.spec.nope == 1", "");
        one(&["none.example.org/v1/nothings"], "object.spec.nope == 1", "");
        one(
            DEPLOYMENTS,
            "authorizer.requestResource.check('get').allowed() && namespaceObject.metadata.name == 'a'",
            "",
        );
    }

    #[test]
    fn messages_variables_and_parameters_are_checked_too() {
        let text = "apps/v1, Kind=Deployment: ERROR: <input>:1:5: found no matching overload for '_+_' applied to '(string, int)'\n | 'a' + object.spec.replicas\n | ....^\n";
        let message = json!([{ "expression": "true", "messageExpression": "'a' + object.spec.replicas" }]);
        check(DEPLOYMENTS, &json!({ "validations": message }), &[("spec.validations[0].messageExpression", text)]);
        let with = |expression: &str, field: &str, value: Value| {
            let mut spec = validations(&[expression]);
            spec[field] = value;
            spec
        };
        let text = "apps/v1, Kind=Deployment: ERROR: <input>:1:13: found no matching overload for '_==_' applied to '(int, string)'\n | variables.r == 'x'\n | ............^\n";
        let variable = |expression: &str| json!([{ "name": "r", "expression": expression }]);
        check(
            DEPLOYMENTS,
            &with("variables.r == 'x'", "variables", variable("object.spec.replicas")),
            &[(FIRST, text)],
        );
        check(DEPLOYMENTS, &with("variables.r == 1", "variables", variable("object.spec.nope")), &[]);
        check(DEPLOYMENTS, &with("variables.r.nope == 1", "variables", variable("object.spec")), &[]);
        let text =
            "apps/v1, Kind=Deployment: ERROR: <input>:1:7: undefined field 'nope'\n | params.nope == 5\n | ......^\n";
        let kind = json!({ "apiVersion": "v1", "kind": "ConfigMap" });
        check(DEPLOYMENTS, &with("params.nope == 5", "paramKind", kind), &[(FIRST, text)]);
        let unknown = json!({ "apiVersion": "none.example.org/v1", "kind": "Nothing" });
        check(DEPLOYMENTS, &with("params.nope == 5", "paramKind", unknown), &[]);
        let conditions = json!([{ "name": "c", "expression": "object.spec.nope == 1" }]);
        check(DEPLOYMENTS, &with("true", "matchConditions", conditions), &[]);
    }
}
