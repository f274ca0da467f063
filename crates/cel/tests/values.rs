//! Tables of expressions and their values, by library.
//!
//! A value is written as `format` writes it. An error has a leading `!`.

use keelson_cel::{CompileError, Environment, EvalError, Meter, Program, Type, Value, decl, values};
use keelson_meta::json::{Value as Json, json};

const LIMIT: u64 = 1_000_000;

/// The result of an expression for this object.
fn outcome(expression: &str, object: &Json, schema: Option<&Json>) -> String {
    let decl = schema.map(|schema| decl::from_schema(schema, "self", false).expect("a schema that is seen"));
    let environment = match &decl {
        Some(decl) => Environment::kubernetes().with_declared("self", decl),
        None => Environment::kubernetes().with("self", Type::Dyn),
    };
    let text = format!("'%s'.format([dyn({expression})])");
    let program = match Program::compile(&text, &environment) {
        Ok(program) => program,
        Err(CompileError::Instantiation(fault)) => return format!("!!{fault}"),
        Err(fault) => panic!("{expression}: {fault}"),
    };
    let value = values::from_tree(object, decl.as_deref());
    match program.evaluate(&[value], &mut Meter::new(LIMIT)) {
        Ok(Value::String(text)) => text.to_string(),
        Ok(other) => panic!("{expression}: {other:?}"),
        Err(EvalError::Failed(fault)) => format!("!{fault}"),
        Err(fault) => format!("!{fault}"),
    }
}

fn check_on(object: &Json, schema: Option<&Json>, table: &[(&str, &str)]) {
    for (expression, expected) in table {
        assert_eq!(outcome(expression, object, schema), *expected, "{expression}");
    }
}

fn check(table: &[(&str, &str)]) {
    check_on(&json!({}), None, table);
}

#[test]
fn reserved_words_name_fields_after_a_dot() {
    let part = json!({"type": "object", "properties": {"while": {"type": "boolean"}}});
    let schema = json!({"type": "object", "properties": {"namespace": {"type": "string"}, "if": part}});
    let table = [
        ("self.namespace + self.__namespace__", "aa"),
        ("has(self.if) && has(self.__if__)", "true"),
        ("self.if.while", "true"),
        ("self.?if.?while.orValue(false)", "true"),
    ];
    check_on(&json!({"namespace": "a", "if": {"while": true}}), Some(&schema), &table);
}

#[test]
fn overflow_and_division_behave_as_in_go() {
    check(&[
        ("2 + 3 * 4 - 1", "13"),
        ("-9 / 4", "-2"),
        ("-9 % 4", "-1"),
        ("9223372036854775806 + 2", "!integer overflow"),
        ("-9223372036854775808 / -1", "!integer overflow"),
        ("-(-9223372036854775808)", "!integer overflow"),
        ("3u - 4u", "!unsigned integer overflow"),
        ("5 / 0", "!division by zero"),
        ("5u % 0u", "!modulus by zero"),
        ("1.0 / 0.0", "+Inf"),
        ("0.1 + 0.2", "0.30000000000000004"),
        ("1e21", "1e+21"),
        ("0x1fu", "31"),
        ("--4", "4"),
        ("1 < 1.5 && 2u >= 2.0 && -1 < 0u", "true"),
        ("dyn(2) == dyn(2.0)", "true"),
        ("dyn(2) == dyn('2')", "false"),
    ]);
}

#[test]
fn type_conversions_return_values_or_errors() {
    check(&[
        ("int(-7.9)", "-7"),
        ("int('4' + '2')", "42"),
        ("int('4' + '.2')", "!type conversion error from 'string' to 'int'"),
        ("int('4.2')", "!!type conversion error from 'string' to 'int'"),
        ("uint(-3)", "!!unsigned integer overflow"),
        ("double('1_000')", "1000"),
        ("bool('TRUE')", "true"),
        ("bool('y' + '')", "!type conversion error from 'string' to 'bool'"),
        ("string(2.50)", "2.5"),
        ("string(b'\\xff' + b'')", "!invalid UTF-8 in bytes, cannot convert to string"),
        ("bytes('é') == b'\\xc3\\xa9'", "true"),
        ("type(type(1u))", "type"),
        ("type(optional.none())", "optional_type"),
        ("type(ip('::1')) == net.IP", "true"),
        ("google.protobuf.Duration{seconds: 2} == duration('2s')", "true"),
        ("google.protobuf.Int64Value{value: 8}", "8"),
    ]);
}

#[test]
fn a_deciding_operand_outweighs_an_error_in_the_other() {
    check(&[
        ("(1 / 0 > 0) || true", "true"),
        ("false && (1 / 0 > 0)", "false"),
        ("(1 / 0 > 0) && false", "false"),
        ("(1 / 0 > 0) || false", "!division by zero"),
        ("[2, 0].all(x, 4 / x > 3)", "false"),
        ("[0, 2].exists(x, 4 / x == 2)", "true"),
        ("[0].all(x, 4 / x == 2)", "!division by zero"),
        ("true ? 1 : 1 / 0", "1"),
    ]);
}

#[test]
fn texts_are_counted_in_code_points() {
    check(&[
        ("size('äöü')", "3"),
        ("'äöü'.charAt(1)", "ö"),
        ("'äöü'.charAt(3)", ""),
        ("'äöü'.charAt(4)", "!index out of range: 4"),
        ("'bananas'.indexOf('an', 2)", "3"),
        ("'bananas'.indexOf('an', 90)", "-1"),
        ("'bananas'.lastIndexOf('an')", "3"),
        ("'bananas'.lastIndexOf('an', 2)", "1"),
        ("'bananas'.lastIndexOf('')", "7"),
        ("'Ünï'.upperAscii()", "ÜNï"),
        ("'xyz'.replace('', '.', 2)", ".x.yz"),
        ("'a-b-c'.split('-', 2)", "[\"a\", \"b-c\"]"),
        ("'äb'.split('')", "[\"ä\", \"b\"]"),
        ("'watermelon'.substring(5)", "melon"),
        ("'watermelon'.substring(4, 2)", "!invalid substring range. start: 4, end: 2"),
        ("['a', 'b'].join('+')", "a+b"),
        ("dyn(null).map(x, x)", "!got 'types.Null', expected iterable type"),
        ("dyn('a').all(x, true)", "!got 'types.String', expected iterable type"),
        ("dyn(1.5).exists(i, x, true)", "!got 'types.Double', expected iterable type"),
        ("dyn([1]).join('+')", "!no such overload: join(list, string)"),
        ("strings.quote('a\\tb\"')", "\"a\\tb\\\"\""),
        ("'''it's'''", "it's"),
        ("r'\\n'.size()", "2"),
    ]);
}

#[test]
fn formats_put_values_in() {
    check(&[
        ("'%d|%x|%X|%o|%b'.format([255, 255, 'hi', 8, true])", "255|ff|6869|10|1"),
        ("'%.2f|%.0f'.format([1234567.891, 2.5])", "1,234,567.89|2"),
        ("'%e'.format([0.00012])", "1.200000×10⁻⁰⁴"),
        ("'%s'.format([{'b': [1, 2.5], 'a': duration('1s')}])", "{\"a\":duration(\"1s\"), \"b\":[1, 2.500000]}"),
        (
            "('%' + 'd').format(['x'])",
            "!error during formatting: decimal clause can only be used on integers, was given string",
        ),
        ("('%' + 's').format([])", "!index 0 out of range"),
        ("('%' + 'y').format([1])", "!could not parse formatting clause: unrecognized formatting clause \"y\""),
    ]);
}

#[test]
fn regular_expressions_find_in_linear_time() {
    check(&[
        ("'order 66'.find('[0-9]+')", "66"),
        ("'a1b22c333'.findAll('[0-9]+', 2)", "[\"1\", \"22\"]"),
        ("'aaaaaaaaaaaaaaaaaaaaaaaaaaaa!'.matches('^(a+)+$')", "false"),
        ("'x'.matches('y' + ')')", "!error parsing regexp: unexpected ): `y)`"),
        ("'x'.find('y' + '[')", "!Illegal regex: error parsing regexp: missing closing ]: `[`"),
        ("'xy'.find('x' + '.')", "xy"),
        ("'١'.matches('\\\\d')", "false"),
    ]);
}

#[test]
fn lists_are_sorted_summed_and_cut() {
    check(&[
        ("[3, 1, 2].sort()", "[1, 2, 3]"),
        ("['bb', 'a'].sortBy(s, s.size())", "[\"a\", \"bb\"]"),
        ("[1, 2, 3].sortBy(x, -x)", "[3, 2, 1]"),
        ("[duration('1m'), duration('1s')].sum()", "61s"),
        ("[].sum()", "0"),
        ("[].max()", "!max called on empty list"),
        ("[2, 7, 5].max() - [2, 7, 5].min()", "5"),
        ("[1, 2, 2].lastIndexOf(2)", "2"),
        ("[1, 2, 3, 4].slice(1, 3)", "[2, 3]"),
        ("[1, 2].slice(0, 3)", "!cannot slice(0, 3), list is length 2"),
        ("[[1], [2, 3]].flatten()", "[1, 2, 3]"),
        ("lists.range(4).reverse()", "[3, 2, 1, 0]"),
        ("[1, 2, 1].distinct()", "[1, 2]"),
        ("[1, 2][2]", "!index out of bounds: 2"),
        ("sets.equivalent([1, 2, 2], [2, 1])", "true"),
        ("sets.intersects([1], [2])", "false"),
    ]);
}

#[test]
fn macros_loop_over_lists_and_maps() {
    check(&[
        ("[1, 2, 3].map(x, x > 1, x * x)", "[4, 9]"),
        ("[1, 2].map(x, [10, 20].map(y, x * y))", "[[10, 20], [20, 40]]"),
        ("[1, 2, 2].exists_one(x, x == 2)", "false"),
        ("{'a': 1, 'b': 2}.filter(k, k != 'a')", "[\"b\"]"),
        ("[5, 6].all(i, v, v == i + 5)", "true"),
        ("{'a': 1}.transformMap(k, v, k + string(v))", "{\"a\":\"a1\"}"),
        ("['x', 'x'].transformMapEntry(i, v, {v: i})", "!insert failed: key x already exists"),
        ("[1, 2, 3].transformList(i, v, i > 0, v + i)", "[3, 5]"),
        ("{'a': 1, 'a': 3}", "{\"a\":3}"),
        ("has({'a': 1}.a) && !has({'a': 1}.b)", "true"),
        ("has({}.a.b)", "!no such key: a"),
        ("[[1], [2]].exists(l, l.exists(x, x == 2))", "true"),
    ]);
}

#[test]
fn optional_values_pass_through() {
    check(&[
        ("{'a': {'b': 2}}.?a.?b.orValue(0)", "2"),
        ("{'a': {'b': 2}}.?a.?c.orValue(0)", "0"),
        ("[1][?4].hasValue()", "false"),
        ("optional.none().value()", "!optional.none() dereference"),
        ("optional.of(3).optMap(x, x * x).value()", "9"),
        ("optional.none().or(optional.of(4)).value()", "4"),
        ("[?optional.none(), ?optional.of(1)]", "[1]"),
        ("{?'a': optional.none(), 'b': 1}", "{\"b\":1}"),
        ("optional.ofNonZeroValue('').hasValue()", "false"),
        ("[1, 2].last().value()", "2"),
        ("optional.unwrap([optional.of(1), optional.none()])", "[1]"),
    ]);
}

#[test]
fn times_have_zones_and_ends() {
    check(&[
        ("duration('90m')", "5400s"),
        ("timestamp('2001-09-09T01:46:40Z') + duration('1h')", "2001-09-09T02:46:40Z"),
        ("int(timestamp('2001-09-09T01:46:40Z'))", "1000000000"),
        ("timestamp('2001-09-09T01:46:40.5+02:00')", "2001-09-09T01:46:40.5+02:00"),
        ("timestamp('2001-09-09T01:46:40Z').getDayOfWeek()", "0"),
        ("timestamp('2001-09-09T01:46:40Z').getDayOfYear()", "251"),
        ("timestamp('2001-09-09T01:46:40Z').getHours('Europe/Berlin')", "3"),
        ("timestamp('2001-09-09T01:46:40Z').getMinutes('-01:30')", "16"),
        ("timestamp('2001-09-09T01:46:40Z').getHours('No/Where')", "!unknown time zone No/Where"),
        ("timestamp('9999-12-31T23:59:59Z') + duration('1s')", "!timestamp overflow"),
        (
            "timestamp('2001-02-29T00:00:00Z' + '')",
            "!type conversion error from 'string' to 'google.protobuf.Timestamp'",
        ),
        ("duration('1500ms').getMilliseconds()", "1500"),
    ]);
}

#[test]
fn addresses_urls_quantities_versions_and_formats_are_read() {
    check(&[
        (
            "ip('2001:DB8::1')",
            "!error during formatting: string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps, was given net.IP",
        ),
        ("string(ip('2001:DB8::1'))", "2001:db8::1"),
        ("isIP('10.0.0.01') || isIP('::ffff:10.0.0.1')", "false"),
        (
            "ip('10.0.0.300')",
            "!IP Address \"10.0.0.300\" parse error during conversion from string: ParseAddr(\"10.0.0.300\"): IPv4 field has value >255",
        ),
        ("cidr('10.9.0.0/16').containsIP('10.9.8.7')", "true"),
        ("cidr('10.9.0.0/16').containsCIDR('10.0.0.0/8')", "false"),
        ("string(cidr('10.9.8.7/16').masked())", "10.9.0.0/16"),
        ("url('https://u@example.com:81/a b?x=1&x=2#f').getEscapedPath()", "/a%20b"),
        ("url('https://[::2]:81/').getHostname()", "::2"),
        ("url('https://example.com/?x=1&y=&x=2').getQuery()", "{\"x\":[\"1\", \"2\"], \"y\":[\"\"]}"),
        ("url('here')", "!URL parse error during conversion from string: parse \"here\": invalid URI for request"),
        ("quantity('1.5Gi').sub(quantity('512Mi')) == quantity('1Gi')", "true"),
        ("quantity('1500m').asInteger()", "!cannot convert value to integer"),
        ("sign(quantity('-2'))", "-1"),
        ("semver('1.10.0').isGreaterThan(semver('1.9.9'))", "true"),
        ("semver('v1.2', true).patch()", "0"),
        ("semver('1.02.3')", "!Minor number must not contain leading zeroes \"02\""),
        ("format.dns1123Label().validate('ok').hasValue()", "false"),
        ("format.uuid().validate('no').value()", "[\"does not match the UUID format\"]"),
        ("format.named('nothing').hasValue()", "false"),
    ]);
}

#[test]
fn an_object_without_a_schema_is_seen_as_it_is() {
    let object = json!({"spec": {"n": 5, "d": 1.5, "l": [3, 1], "none": null, "a-b": true}});
    check_on(
        &object,
        None,
        &[
            ("self.spec.n + self.spec.l[0]", "8"),
            ("self.spec.none == null", "true"),
            ("has(self.spec.none)", "true"),
            ("self.spec['a-b']", "true"),
            ("self.spec.n + self.spec.d", "!no such overload"),
            ("self.spec.missing.deeper", "!no such key: missing"),
            ("self.spec.l.first", "!unsupported index type 'string' in list"),
            ("type(self.spec.d)", "double"),
            ("self.spec.l.exists(x, x == self.spec.n)", "false"),
        ],
    );
}

#[test]
fn an_object_with_a_schema_is_seen_as_it_is_declared() {
    let text = json!({"type": "string", "maxLength": 9});
    let list = |kind: &str| json!({"type": "array", "items": text, "maxItems": 9, "x-kubernetes-list-type": kind});
    let schema = json!({"type": "object", "properties": {
        "at": {"type": "string", "format": "date-time"},
        "day": {"type": "string", "format": "date"},
        "bytes": {"type": "string", "format": "byte"},
        "number": {"type": "number"},
        "port": {"x-kubernetes-int-or-string": true},
        "gone": {"type": "string", "nullable": true},
        "in": {"type": "integer"},
        "a-b": {"type": "integer"},
        "set": list("set"),
        "list": list("atomic"),
        "map": {"type": "object", "additionalProperties": {"type": "integer"}, "maxProperties": 9}
    }});
    let object = json!({
        "at": "2001-09-09T01:46:40Z", "day": "2001-09-09", "bytes": "aGk=", "number": 2, "port": "80%", "gone": null,
        "in": 1, "a-b": 2, "set": ["x", "y"], "list": ["x", "y"], "map": {"k": 7, "l/m": 8}
    });
    check_on(
        &object,
        Some(&schema),
        &[
            ("self.at.getFullYear()", "2001"),
            ("self.day + duration('1h')", "2001-09-09T01:00:00Z"),
            ("self.bytes == b'hi'", "true"),
            ("self.number + 0.5", "2.5"),
            ("self.port.endsWith('%')", "true"),
            ("self.port > 5", "!no such overload"),
            ("has(self.gone)", "false"),
            ("self.__in__ + self.a__dash__b", "3"),
            ("self.set == ['y', 'x']", "true"),
            ("self.list == ['y', 'x']", "false"),
            ("self.set + ['y', 'z']", "[\"x\", \"y\", \"z\"]"),
            ("self.list + ['y']", "[\"x\", \"y\", \"y\"]"),
            ("self.map['l/m'] - self.map.k", "1"),
            ("self.map.all(k, v, v > 6)", "true"),
            ("type(self)", "map"),
        ],
    );
}

#[test]
fn concatenated_sets_and_map_lists_are_equal_in_any_order() {
    let text = json!({"type": "string"});
    let item = json!({"type": "object", "properties": {"a-b": text, "namespace": text, "v": {"type": "integer"}}});
    let schema = json!({"type": "object", "properties": {
        "set": {"type": "array", "items": text, "x-kubernetes-list-type": "set"},
        "map": {"type": "array", "items": item, "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["a-b", "namespace"]},
        "other": {"type": "array", "items": item}
    }});
    let object = json!({
        "set": ["x", "y"],
        "map": [{"a-b": "1", "namespace": "n", "v": 1}, {"a-b": "2", "namespace": "n", "v": 2}],
        "other": [{"a-b": "3", "namespace": "n", "v": 3}, {"a-b": "1", "namespace": "n", "v": 9}],
    });
    check_on(
        &object,
        Some(&schema),
        &[
            ("self.set + ['z'] == ['z', 'y', 'x']", "true"),
            ("self.set + ['z'] + ['x'] == ['z', 'y', 'x']", "true"),
            ("self.set + ['x', 'y', 'z', 'z'] == ['x', 'y', 'z']", "true"),
            ("['z'] + self.set == ['x', 'y', 'z']", "false"),
            ("self.set == ['x', 'x']", "false"),
            ("(self.set + ['z']).map(x, x) == ['z', 'y', 'x']", "false"),
            ("(self.map + dyn(self.other)).map(x, x.v)", "[9, 2, 3]"),
            ("self.map + dyn(self.other) == dyn(self.other) + self.map", "false"),
            ("self.map[0] == self.map[0] && self.map[0] != self.map[1]", "true"),
            ("self.map + dyn(self.other) == self.map + dyn(self.other) + dyn(self.other)", "true"),
            ("self.map + dyn(self.other) == dyn([dyn(self.other[0]), self.map[1], self.other[1]])", "true"),
            ("self.map + dyn(self.other) == dyn([dyn(self.other[0]), self.map[1], self.map[0]])", "false"),
            (
                "self.map + dyn([self.other[0]]) + self.map == dyn([dyn(self.map[1]), self.other[0], self.map[0]])",
                "true",
            ),
        ],
    );
}

#[test]
fn a_set_with_repeated_elements_is_no_larger_set() {
    let list = json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"});
    let schema = json!({"type": "object", "properties": {"a": list, "b": list}});
    let object = json!({"a": ["x", "x", "y"], "b": ["x", "y", "z"]});
    check_on(&object, Some(&schema), &[("self.a == self.b", "false"), ("self.b == self.a", "false")]);
}

#[test]
fn a_sum_of_quantities_leaves_its_parts_alone() {
    let large = "1234567890123456789.123";
    let compared = "x.add(quantity('1')).compareTo(x.add(quantity('2'))) == -1";
    let differences = "x.sub(quantity('1')).compareTo(x.sub(quantity('2'))) == 1";
    let expression = format!("[quantity('{large}'), quantity('1')].all(x, {compared} && {differences})");
    check_on(&json!({}), None, &[(&expression, "true")]);
}
