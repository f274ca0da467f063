//! Values with several faults, in upstream's order.
//!
//! The cases include the types implied by formats and numbers.

use keelson_meta::json::json;

use super::check;

#[test]
fn validation_continues_after_a_wrong_type_or_length() {
    let wrong =
        |of: &str, found: &str| format!("Invalid value: \"{found}\": spec.f in body must be of type {of}: \"{found}\"");
    let one_of = json!({ "type": "string", "enum": ["a", "b"] });
    let unsupported = |value: &str| format!("Unsupported value: {value}: supported values: \"a\", \"b\"");
    check(&one_of, json!(5), &[("spec.f", &wrong("string", "integer")), ("spec.f", &unsupported("5"))]);
    check(&one_of, json!(null), &[("spec.f", &wrong("string", "null")), ("spec.f", &unsupported("null"))]);
    let id =
        json!({ "type": "string", "minLength": 36, "pattern": "^[0-9a-f-]+$", "format": "uuid", "enum": ["a", "b"] });
    let short = "Invalid value: \"z\": spec.f in body should be at least 36 chars long";
    check(&id, json!("z"), &[("spec.f", short), ("spec.f", &wrong("uuid", "z")), ("spec.f", &unsupported("\"z\""))]);
    let object = json!({
        "type": "object", "enum": [{ "a": 1 }], "required": ["z", "a"],
        "properties": { "c": { "type": "string" }, "d": { "type": "string" } },
    });
    let of_field =
        |name: &str| format!("Invalid value: \"integer\": spec.f.{name} in body must be of type string: \"integer\"");
    let required = "Required value";
    check(
        &object,
        json!({ "d": 1, "c": 2 }),
        &[
            ("spec.f", "Unsupported value: {\"c\":2,\"d\":1}: supported values: \"{\\\"a\\\":1}\""),
            ("spec.f.c", &of_field("c")),
            ("spec.f.d", &of_field("d")),
            ("spec.f.z", required),
            ("spec.f.a", required),
        ],
    );
}

#[test]
fn formats_name_the_type_that_is_missing() {
    let wrong =
        |of: &str, found: &str| format!("Invalid value: \"{found}\": spec.f in body must be of type {of}: \"{found}\"");
    let of = |kind: &str, format: &str| json!({ "type": kind, "format": format });
    for (kind, format) in
        [("integer", "int32"), ("integer", "int64"), ("number", "double"), ("string", "date-time"), ("string", "byte")]
    {
        check(&of(kind, format), json!(true), &[("spec.f", &wrong(format, ""))]);
        check(&of(kind, format), json!({}), &[("spec.f", &wrong(format, ""))]);
        check(&of(kind, format), json!([]), &[("spec.f", &wrong(kind, "array"))]);
        check(&of(kind, format), json!(null), &[("spec.f", &wrong(kind, "null"))]);
    }
    check(&of("integer", "int32"), json!("1"), &[("spec.f", &wrong("integer", "string"))]);
    check(&of("string", "password"), json!(5), &[("spec.f", &wrong("password", "int64"))]);
    // A format of another type is ignored.
    check(&of("string", "int32"), json!(5), &[("spec.f", &wrong("string", "integer"))]);
    check(&of("integer", "byte"), json!(true), &[("spec.f", &wrong("integer", "boolean"))]);
    let either = json!({ "x-kubernetes-int-or-string": true, "format": "int32" });
    check(&either, json!(1_i64 << 40), &[]);
    check(&either, json!(true), &[("spec.f", &wrong("integer,string", "boolean"))]);
}

#[test]
fn numbers_and_their_bounds_are_in_the_range_of_their_type() {
    let beyond = |what: &str, of: &str| format!("Invalid value: \"\": {what} value must be of type {of} in spec.f");
    let large = 1_i64 << 40;
    check(
        &json!({ "type": "integer", "format": "int32" }),
        json!(large),
        &[("<nil>", &beyond("Checked", "integer with format int32"))],
    );
    check(
        &json!({ "type": "number", "format": "float" }),
        json!(1e300),
        &[("<nil>", &beyond("Checked", "number with format float"))],
    );
    check(
        &json!({ "type": "integer", "format": "int32", "maximum": large }),
        json!(5),
        &[("<nil>", &beyond("Maximum boundary", "integer with format int32"))],
    );
    check(
        &json!({ "type": "integer", "minimum": 0.5 }),
        json!(5),
        &[("<nil>", &beyond("Minimum boundary", "integer (default format)"))],
    );
    let all = json!({ "type": "integer", "format": "int32", "multipleOf": 3, "maximum": 10 });
    check(
        &all,
        json!(large),
        &[
            ("<nil>", &beyond("Checked", "integer with format int32")),
            ("spec.f", &format!("Invalid value: {large}: spec.f in body should be a multiple of 3")),
            ("spec.f", &format!("Invalid value: {large}: spec.f in body should be less than or equal to 10")),
        ],
    );
}
