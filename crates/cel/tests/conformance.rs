//! The conformance suite of the language, with the types and faults of cel-go, which `cargo xtask test` fetches.
//! Without it the test reports that it did not run.
//!
//! Kubernetes has no messages of protocol buffers, leaves out some libraries, and checks literals. [`Outcome`] names
//! these classes.

use std::collections::BTreeMap;
use std::path::Path;

use data_encoding::BASE64;
use keelson_cel::library::times::{parse_duration, parse_timestamp};
use keelson_cel::{CompileError, Environment, EvalError, Meter, Program, Type, Value};
use serde_json::Value as Json;

/// The variable with the directory of the suites; `cargo xtask npm` prints it.
const VARIABLE: &str = "KEELSON_TEST_NPM";
const LIMIT: u64 = 10_000_000;

/// Suites of libraries that Kubernetes does not have, and of messages.
const FOREIGN: [&str; 9] =
    ["block_ext", "encoders_ext", "math_ext", "proto2", "proto3", "proto2_ext", "enums", "dynamic", "wrappers"];

/// Cases with another outcome, each with the reason.
const OTHERWISE: [(&str, &str); 11] = [
    ("map_value_repeat_key", "cel-go keeps the last of equal keys"),
    ("indexof_out_of_range", "cel-go returns -1"),
    ("lastindexof_out_of_range", "cel-go returns -1"),
    ("get_milliseconds", "cel-go returns all milliseconds of a duration"),
    ("parens", "Kubernetes allows 250 levels, and the suite 32"),
    ("namespace", "Kubernetes has a function with this name"),
    ("[].existsOne(__result__, __result__)", "the accumulator of Kubernetes has a name that no expression has"),
    ("m.map(__result__, __result__)", "the accumulator of Kubernetes has a name that no expression has"),
    ("m.filter(__result__, false)", "the accumulator of Kubernetes has a name that no expression has"),
    ("m.existsOne(v, f)", "Kubernetes has this macro"),
    ("a ? b ((?))", "Kubernetes allows 30 attempts of recovery, and the suite 4"),
];
/// Texts with several faults of syntax, after which the two parsers recover at other places.
const RECOVERED: [&str; 5] = ["in.😁", "func{{a}}", "msg{:a}", "--", "self.true == 1"];

const LIMITS: [&str; 2] = ["limit exceeded: ", "max recursion depth exceeded"];
const OPTIONAL: [&str; 3] = ["unsupported syntax '?'", "unsupported syntax '.?'", "unsupported syntax '[?'"];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    /// The value of the suite.
    Value,
    /// The case checks only the type, which equals that of cel-go.
    Typed,
    /// The evaluation fails, as in the suite.
    Fails,
    /// The compilation fails with the text of cel-go.
    Fault,
    /// The case needs a feature that Kubernetes does not enable.
    Foreign,
    /// Refused: Kubernetes wants elements of one type in a literal.
    Mixed,
    /// Refused: Kubernetes checks literals of times before the evaluation.
    Checked,
    /// Kubernetes has version 2 of `format`, and the suite has a later one.
    Format,
    /// See [`OTHERWISE`] and [`RECOVERED`].
    Otherwise,
    /// Kubernetes limits the depth or length of an expression otherwise.
    Limited,
}

#[test]
fn expressions_have_the_types_values_and_faults_of_the_suite() {
    let Some(directory) = std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) else {
        println!("not run: {VARIABLE} names no suites");
        return;
    };
    let cases = std::fs::read(Path::new(&directory).join("suites/cel.json")).unwrap();
    let cases: Vec<Json> = serde_json::from_slice(&cases).unwrap();
    let mut counts = BTreeMap::new();
    let mut faults = Vec::new();
    for case in &cases {
        match outcome(case) {
            Ok(outcome) => *counts.entry(outcome).or_insert(0) += 1,
            Err(fault) => faults.push(format!("{}: {}\n  {fault}", text(case, "suite"), text(case, "expr"))),
        }
    }
    assert!(faults.is_empty(), "{} faults of {counts:?}\n{}", faults.len(), faults.join("\n"));
    let expected = [
        (Outcome::Value, 1177),
        (Outcome::Typed, 42),
        (Outcome::Fails, 81),
        (Outcome::Fault, 208),
        (Outcome::Foreign, 909),
        (Outcome::Mixed, 57),
        (Outcome::Checked, 8),
        (Outcome::Format, 28),
        (Outcome::Otherwise, 15),
        (Outcome::Limited, 13),
    ];
    assert_eq!(counts, BTreeMap::from(expected));
}

fn text<'c>(case: &'c Json, field: &str) -> &'c str {
    case[field].as_str().unwrap_or_default()
}

fn outcome(case: &Json) -> Result<Outcome, String> {
    let suite = text(case, "suite");
    let all = case.to_string();
    let is_foreign = FOREIGN.contains(&suite.split('/').next().unwrap_or_default())
        || ["TestAllTypes", "cel.expr.conformance", "\"container\""].iter().any(|word| all.contains(word));
    if is_foreign {
        return Ok(Outcome::Foreign);
    }
    let found = compare(case);
    let expr = text(case, "expr");
    let name = if text(case, "name").is_empty() { expr } else { text(case, "name") };
    if found.is_err() && suite.starts_with("string_ext/format") {
        return Ok(Outcome::Format);
    }
    let is_known = OTHERWISE.iter().any(|(known, _)| *known == name) || RECOVERED.iter().any(|end| expr.ends_with(end));
    if found.is_err() && is_known {
        return Ok(Outcome::Otherwise);
    }
    found
}

fn compare(case: &Json) -> Result<Outcome, String> {
    let Some((environment, values)) = environment(case) else { return Ok(Outcome::Foreign) };
    let must_fail = case["evalError"].is_object();
    let program = match (Program::compile(text(case, "expr"), &environment), error(case)) {
        (Err(CompileError::Invalid(fault)), _) if fault.contains("expected type '") => return Ok(Outcome::Mixed),
        (Err(CompileError::Invalid(fault)), None) if must_fail && fault.contains(" argument\n") => {
            return Ok(Outcome::Checked);
        }
        (Err(CompileError::Instantiation(_)), None) if must_fail => return Ok(Outcome::Fails),
        (Err(CompileError::Invalid(fault)), Some(error)) if fault == error => return Ok(Outcome::Fault),
        (_, Some(error)) if LIMITS.iter().any(|limit| error.contains(limit)) => return Ok(Outcome::Limited),
        // The parser of the suite was made without optional fields.
        (_, Some(error)) if OPTIONAL.iter().any(|syntax| error.contains(syntax)) => return Ok(Outcome::Foreign),
        (Err(fault), error) => return Err(format!("{fault}\ninstead of {error:?}")),
        (Ok(program), Some(error)) => return Err(format!("has the type {}, instead of {error}", program.result())),
        (Ok(program), None) => program,
    };
    let ty = program.result().to_string();
    if case["type"].as_str().is_some_and(|expected| expected != ty) {
        return Err(format!("has the type {ty}, instead of {}", case["type"]));
    }
    if case["checkOnly"] == true || case["name"].is_null() {
        return Ok(Outcome::Typed);
    }
    match (program.evaluate(&values, &mut Meter::new(LIMIT)), must_fail) {
        (Err(EvalError::Failed(_)), true) => Ok(Outcome::Fails),
        (Err(fault), _) => Err(format!("fails: {fault}")),
        (Ok(found), true) => Err(format!("is {}, instead of {}", typed(&found), case["evalError"])),
        (Ok(found), false) => {
            let expected = expected(case).ok_or("the suite has a value of an unknown kind")?;
            let (found, expected) = (typed(&found), typed(&expected));
            if found == expected { Ok(Outcome::Value) } else { Err(format!("is {found}, instead of {expected}")) }
        }
    }
}

/// The text of cel-go for the faults of an expression. Some suites were compiled without their own macros and syntax.
fn error(case: &Json) -> Option<String> {
    let is_bare = ["optionals/", "macros2/"].iter().any(|suite| text(case, "suite").starts_with(suite));
    let error = case["error"].as_str().filter(|_| !is_bare)?;
    let own = format!("ERROR: {}:", text(case, "name"));
    Some(error.replace(&own, "ERROR: <input>:").trim_end().to_owned())
}

/// The declared variables with their values. `None` if Kubernetes does not have one of the types.
fn environment(case: &Json) -> Option<(Environment, Vec<Value<'static>>)> {
    let mut environment = Environment::kubernetes().with_bindings();
    let mut values = Vec::new();
    for declared in case["typeEnv"].as_array().into_iter().flatten() {
        let name = text(declared, "name");
        environment = environment.with(name, type_of(&declared["ident"]["type"])?);
        values.push(case["bindings"].get(name).map_or(Some(Value::Null), |bound| value_of(&bound["value"]))?);
    }
    Some((environment, values))
}

/// The expected value. A case without one expects true.
fn expected(case: &Json) -> Option<Value<'static>> {
    let value = if case["typedResult"].is_object() { &case["typedResult"]["result"] } else { &case["value"] };
    if value.is_null() { Some(Value::Bool(true)) } else { value_of(value) }
}

fn type_of(ty: &Json) -> Option<Type> {
    let (kind, of) = ty.as_object()?.iter().next()?;
    Some(match (kind.as_str(), of.as_str().unwrap_or_default()) {
        ("primitive", "BOOL") => Type::Bool,
        ("primitive", "INT64") => Type::Int,
        ("primitive", "UINT64") => Type::Uint,
        ("primitive", "DOUBLE") => Type::Double,
        ("primitive", "STRING") => Type::String,
        ("primitive", "BYTES") => Type::Bytes,
        ("messageType", "google.protobuf.Duration") | ("wellKnown", "DURATION") => Type::Duration,
        ("messageType", "google.protobuf.Timestamp") | ("wellKnown", "TIMESTAMP") => Type::Timestamp,
        ("listType", _) => Type::list(type_of(&of["elemType"])?),
        ("mapType", _) => Type::map(type_of(&of["keyType"])?, type_of(&of["valueType"])?),
        ("null", _) => Type::Null,
        ("dyn", _) => Type::Dyn,
        _ => return None,
    })
}

fn value_of(value: &Json) -> Option<Value<'static>> {
    let (kind, value) = value.as_object()?.iter().next()?;
    let text = value.as_str().unwrap_or_default();
    Some(match kind.as_str() {
        "nullValue" => Value::Null,
        "boolValue" => Value::Bool(value.as_bool()?),
        "int64Value" => Value::Int(text.parse().ok()?),
        "uint64Value" => Value::Uint(text.parse().ok()?),
        // JSON has texts for infinities and for what is not a number.
        "doubleValue" => Value::Double(value.as_f64().or_else(|| text.parse().ok())?),
        "stringValue" => Value::String(text.to_owned().into()),
        "bytesValue" => Value::Bytes(BASE64.decode(text.as_bytes()).ok()?.into()),
        "typeValue" => Value::Type(text.to_owned().into()),
        "listValue" => {
            Value::list(value["values"].as_array().into_iter().flatten().map(value_of).collect::<Option<_>>()?)
        }
        "mapValue" => {
            let entries = value["entries"].as_array().into_iter().flatten();
            Value::map(
                entries.map(|one| Some((value_of(&one["key"])?, value_of(&one["value"])?))).collect::<Option<_>>()?,
            )
        }
        "objectValue" => match value["@type"].as_str()?.rsplit('.').next()? {
            "Duration" => Value::Duration(parse_duration(value["value"].as_str()?)?),
            "Timestamp" => Value::Timestamp(parse_timestamp(value["value"].as_str()?)?),
            _ => return None,
        },
        _ => return None,
    })
}

/// A value with its type.
fn typed(value: &Value<'_>) -> String {
    match value {
        Value::List(list) => format!("[{}]", list.iter().map(|one| typed(&one)).collect::<Vec<_>>().join(", ")),
        Value::Map(map) => {
            let entries = map.entries();
            let mut entries: Vec<_> =
                entries.iter().map(|(key, value)| format!("{}: {}", typed(key), typed(value))).collect();
            entries.sort();
            format!("{{{}}}", entries.join(", "))
        }
        Value::String(text) => format!("{:?}", &**text),
        Value::Type(name) => format!("type {}", &**name),
        Value::Timestamp(time) => format!("timestamp {time}"),
        // The suite's zero stands for the negative one, too.
        Value::Double(0.0) => "0.0".to_owned(),
        other => format!("{other:?}"),
    }
}
