//! Environments of expressions: the variables and functions of rules, policies, and match conditions of webhooks and
//! tokens.
//!
//! The authorizer of the tests records the checks that it decides.

use keelson_cel::environments::{self, Admission};
use keelson_cel::library::authorizer::{Authorizer, Decision, Question};
use keelson_cel::{CompileError, Environment, EvalError, Meter, Program, Type, Value, decl, values};
use keelson_meta::json::{Value as Json, json};
use std::sync::Mutex;

const LIMIT: u64 = 1_000_000;

fn fault(text: &str, environment: &Environment) -> String {
    Program::compile(text, environment).expect_err("a fault").to_string()
}

#[derive(Debug, Default)]
struct Asked(Mutex<Vec<Question>>);

impl Authorizer for Asked {
    fn authorize(&self, question: &Question) -> Decision {
        self.0.lock().expect("no panic before").push(question.clone());
        let allowed = question.verb == "get";
        Decision { allowed, reason: "because".to_owned(), error: None }
    }
}

/// The result of an expression in the environment of a policy, as JSON.
fn admitted(text: &str, asked: &Asked) -> Result<Json, String> {
    let variables = environments::variables([("count".to_owned(), Type::Int)]);
    let with = Admission { params: true, authorizer: true, variables: Some(variables), patches: true };
    let program = Program::compile(text, &environments::admission(&with)).map_err(|fault| fault.to_string())?;
    let object = json!({"metadata": {"name": "a"}, "spec": {"namespace": "word", "replicas": 3}});
    let request = json!({
        "operation": "CREATE", "name": "a", "namespace": "ns", "dryRun": false,
        "kind": {"group": "apps", "version": "v1", "kind": "Deployment"},
        "userInfo": {"username": "eve", "groups": ["g"], "extra": {"k": ["v"]}}
    });
    let namespace = json!({"metadata": {"name": "ns", "labels": {"l": "m"}}});
    let (params, counted) = (json!({"most": 5}), json!({"count": 4}));
    let declared = |value, decl| values::from_tree(value, Some(decl));
    let question = Question { group: "apps".into(), resource: "deployments".into(), ..Question::default() };
    let variables = [
        values::from_tree(&object, None),
        Value::Null,
        declared(&request, &environments::ADMISSION_REQUEST),
        Value::authorizer(asked),
        Value::resource_check(asked, question),
        declared(&namespace, &environments::NAMESPACE),
        values::from_tree(&params, None),
        values::from_tree(&counted, None),
    ];
    let value = program.evaluate(&variables, &mut Meter::new(LIMIT)).map_err(|fault| fault.to_string())?;
    values::to_json(&value)
}

#[test]
fn a_policy_sees_the_request_and_its_objects() {
    let check = |text: &str, expected: Json| assert_eq!(admitted(text, &Asked::default()), Ok(expected), "{text}");
    check("oldObject == null && object.spec.replicas <= params.most", json!(true));
    check("request.operation + ' ' + request.namespace", json!("CREATE ns"));
    check("has(request.subResource)", json!(false));
    check("request.userInfo.extra['k'][0] + request.userInfo.groups[0]", json!("vg"));
    check("namespaceObject.metadata.labels.l", json!("m"));
    check("variables.count + 1", json!(5));
    check("object.spec.namespace", json!("word"));
    check(
        "[JSONPatch{op: 'add', path: '/spec/' + jsonpatch.escapeKey('a/b~'), value: {'x': dyn(1.5), 'at': dyn(duration('90s'))}}]",
        json!([{"op": "add", "path": "/spec/a~1b~0", "value": {"x": 1.5, "at": "90s"}}]),
    );
    check("Object{spec: Object.spec{replicas: 4, ?paused: optional.none()}}", json!({"spec": {"replicas": 4}}));
    check(
        "[dyn(bytes('hi')), dyn(timestamp(0)), dyn([2.0]), dyn(optional.of('x'))]",
        json!(["aGk=", "1970-01-01T00:00:00Z", [2], "x"]),
    );
    let refused = |text: &str, why: &str| {
        let fault = admitted(text, &Asked::default()).expect_err("refused");
        assert!(fault.contains(why), "{text}: {fault}");
    };
    refused("request.uid", "undefined field 'uid'");
    refused("variables.other", "undefined field 'other'");
    refused("1.0 / 0.0", "invalid +Inf value");
    refused("optional.none()", "optional.none() dereference");
    refused("quantity('1Gi')", "type conversion error from 'Quantity' to '*structpb.Value'");
    refused("type(object) == timestamp", "program instantiation failed: reference to undefined type: timestamp");
}

#[test]
fn the_cel_authorizer_gets_the_composed_attributes() {
    let asked = Asked::default();
    let text = "authorizer.group('apps').resource('deployments').subresource('scale').namespace('ns').name('a')\
                .fieldSelector('metadata.name=a').labelSelector('l=m').check('get').allowed()";
    assert_eq!(admitted(text, &asked), Ok(json!(true)));
    assert_eq!(admitted("authorizer.path('/metrics/').check('post').reason()", &asked), Ok(json!("because")));
    let account = "authorizer.serviceAccount('ns', 'robot').group('').resource('pods').check('list').allowed()";
    assert_eq!(admitted(account, &asked), Ok(json!(false)));
    assert_eq!(admitted("authorizer.requestResource.check('delete').errored()", &asked), Ok(json!(false)));
    assert!(admitted("authorizer.serviceAccount('NS', 'robot')", &asked).is_err());
    let questions = asked.0.into_inner().expect("no panic before");
    let resource = |verb: &str, group: &str, resource: &str| Question {
        verb: verb.into(),
        group: group.into(),
        resource: resource.into(),
        ..Question::default()
    };
    let whole = Question {
        subresource: "scale".into(),
        namespace: "ns".into(),
        name: "a".into(),
        field_selector: "metadata.name=a".into(),
        label_selector: "l=m".into(),
        ..resource("get", "apps", "deployments")
    };
    let path = Question { verb: "post".into(), path: Some("/metrics".into()), ..Question::default() };
    let account = Question { service_account: Some(("ns".into(), "robot".into())), ..resource("list", "", "pods") };
    assert_eq!(questions, [whole, path, account, resource("delete", "apps", "deployments")]);
    // A check is expensive, so an expression can run only a few checks.
    let all = "[1, 2, 3].all(x, authorizer.path('/').check('get').allowed())";
    assert_eq!(admitted(all, &Asked::default()), Err(EvalError::TooCostly.to_string()));
}

#[test]
fn environments_declare_only_their_own_variables() {
    let undeclared = |text: &str, environment: &Environment, name: &str| {
        let said = fault(text, environment);
        assert!(said.contains(&format!("undeclared reference to '{name}' (in container '')")), "{text}: {said}");
    };
    let plain = environments::admission(&Admission::default());
    undeclared("params.x == 1", &plain, "params");
    undeclared("authorizer.path('/').check('get').allowed()", &plain, "authorizer");
    undeclared("variables.x == 1", &plain, "variables");
    undeclared("self.x == 1", &plain, "self");
    undeclared("namespaceObject.metadata.name == ''", &environments::access_review(), "namespaceObject");
    undeclared("object.x == 1", &environments::claims(), "object");
    assert!(Program::compile("claims.sub + ':' + claims['https://x/y']", &environments::claims()).is_ok());
    assert!(Program::compile("user.groups.exists(g, g == user.username)", &environments::user()).is_ok());
    let review =
        "request.resourceAttributes.labelSelector.requirements.exists(r, r.key == 'k') || request.user == 'eve'";
    assert!(Program::compile(review, &environments::access_review()).is_ok());
    let jsonpatch = fault("jsonpatch.escapeKey('x') == ''", &plain);
    assert!(jsonpatch.contains("undeclared reference to 'escapeKey'"), "{jsonpatch}");
}

#[test]
fn device_selectors_read_attributes_and_capacity() {
    let text = "cel.bind(gpu, device.attributes['gpu.example.com'], gpu.model == 'a1' && semver(gpu.?driver.orValue('0.0.0'))\
                .isGreaterThan(semver('1.2.3'))) && device.capacity['gpu.example.com'].memory.compareTo(quantity('40Gi')) >= 0";
    let program = Program::compile_to(text, &environments::device(), &[Type::Bool]).expect("a selector");
    let held = |device: &Json| {
        let device = values::from_tree(device, Some(&environments::DEVICE));
        program.holds(&[device], &mut Meter::new(LIMIT))
    };
    let device = |driver: &str, memory: &str| {
        json!({
            "driver": "gpu.example.com",
            "attributes": {"gpu.example.com": {"model": "a1", "driver": driver}},
            "capacity": {"gpu.example.com": {"memory": memory}}
        })
    };
    assert_eq!(held(&device("1.10.0", "64Gi")), Ok(true));
    assert_eq!(held(&device("1.2.3", "64Gi")), Ok(false));
    assert_eq!(held(&device("2.0.0", "32Gi")), Ok(false));
    assert_eq!(held(&json!({"driver": "other"})), Err(EvalError::no_key("attributes")));
}

#[test]
fn old_self_is_optional_in_rules_with_optional_old_self() {
    let schema = json!({"type": "object", "properties": {"i": {"type": "integer"}}});
    let decl = decl::from_schema(&schema, "selfType", false).expect("a schema that is seen");
    let optional = environments::rule(&decl, true);
    let rule = Program::compile_rule("oldSelf.?i.orValue(0) <= self.i", &optional).expect("a rule");
    assert!(rule.uses("oldSelf"));
    let (new, old) = (json!({"i": 3}), json!({"i": 4}));
    let value = |object| values::from_tree(object, Some(&decl));
    let holds = |old| rule.holds(&[value(&new), old], &mut Meter::new(LIMIT));
    assert_eq!(holds(Value::Optional(None)), Ok(true));
    assert_eq!(holds(Value::some(value(&old))), Ok(false));
    assert_eq!(
        fault("oldSelf.i == self.i", &optional),
        "compilation failed: ERROR: <input>:1:11: found no matching overload for '_==_' applied to '(optional_type(int), int)'\n | oldSelf.i == self.i\n | ..........^"
    );
    let plain = environments::rule(&decl, false);
    assert!(!Program::compile_rule("self.i > 1", &plain).expect("a rule").uses("oldSelf"));
    assert_eq!(
        Program::compile_rule("self.i", &plain).map(|_| ()),
        Err(CompileError::Result("cel expression must evaluate to a bool".to_owned()))
    );
    assert_eq!(
        Program::compile_to("self.i", &plain, &[Type::String]).map(|_| ()),
        Err(CompileError::Result("must evaluate to string but got int".to_owned()))
    );
    for (text, result) in [("self.i", "int"), ("duration('1s')", "google.protobuf.Duration"), ("[self.i]", "list(int)")]
    {
        let why = format!("must evaluate to one of [string null_type] but got {result}");
        let made = Program::compile_to(text, &plain, &[Type::String, Type::Null]).map(|_| ());
        assert_eq!(made, Err(CompileError::Result(why)));
    }
}

#[test]
fn the_root_of_a_resource_has_its_names() {
    let schema =
        json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"i": {"type": "integer"}}}}});
    let decl = decl::from_schema(&schema, "selfType", true).expect("a schema that is seen");
    let environment = environments::rule(&decl, false);
    let rule = "self.metadata.name.size() < 5 && self.kind == 'Thing' && !has(self.metadata.generateName)";
    let program = Program::compile_rule(rule, &environment).expect("a rule");
    let object =
        json!({"apiVersion": "a/v1", "kind": "Thing", "metadata": {"name": "x", "labels": {"a": "b"}}, "spec": {}});
    assert_eq!(
        program.holds(&[values::from_tree(&object, Some(&decl)), Value::Null], &mut Meter::new(LIMIT)),
        Ok(true)
    );
    assert!(fault("self.metadata.labels.size() == 0", &environment).contains("undefined field 'labels'"));
    assert!(fault("self.status.i == 1", &environment).contains("undefined field 'status'"));
}
