//! Tests of invalid configurations against upstream's error texts.
//!
//! Most of them have one issuer with one fault.

use std::io::Write as _;

use crate::authentication::AuthenticationConfiguration;

const HEAD: &str = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n";
const OWN: &str = "https://own";

fn read(text: &str) -> Result<AuthenticationConfiguration, String> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    let read = AuthenticationConfiguration::of_file(file.path(), &[OWN.to_owned()]);
    read.map_err(|error| error.to_string().replace(&file.path().display().to_string(), "FILE"))
}

fn check(text: &str, expected: Result<(), &str>) {
    let told = read(&format!("{HEAD}{text}")).map(drop);
    let expected = expected.map_err(|fault| format!("invalid authentication configuration: {fault}"));
    assert_eq!(told, expected, "{text}");
}

/// One issuer with a user name and further fields.
fn issuer(issuer: &str, more: &str) -> String {
    format!("jwt:\n- issuer: {{{issuer}}}\n  claimMappings: {{username: {{claim: sub, prefix: ''}}}}\n{more}")
}

/// One issuer with these mappings.
fn mapped(mappings: &str) -> String {
    format!("jwt:\n- issuer: {{url: 'https://i', audiences: [a]}}\n  claimMappings: {mappings}\n")
}

fn of_issuer(stated: &str, expected: Result<(), &str>) {
    check(&issuer(stated, ""), expected);
}

fn of_rules(rules: &str, expected: Result<(), &str>) {
    check(&issuer("url: 'https://i', audiences: [a]", &format!("  {rules}\n")), expected);
}

#[test]
fn documents_of_another_form_are_refused() {
    let refused = |text: &str| read(text).unwrap_err();
    let failed = |why: &str| format!("failed to load authentication configuration from file \"FILE\": {why}");
    assert_eq!(refused(""), failed("empty config data"));
    let kind = "apiVersion: apiserver.config.k8s.io/v1\nkind: Foo\n";
    assert_eq!(refused(kind), failed("no kind \"Foo\" is registered for version \"apiserver.config.k8s.io/v1\""));
    let version = "apiVersion: apiserver.config.k8s.io/v9\nkind: AuthenticationConfiguration\n";
    assert!(refused(version).contains("is registered for version \"apiserver.config.k8s.io/v9\""));
    assert_eq!(refused(&format!("{HEAD}foo: 1\n")), failed("strict decoding error: unknown field \"foo\""));
    assert_eq!(read(HEAD), Ok(AuthenticationConfiguration::default()));
    assert!(read(&HEAD.replace("/v1", "/v1beta1")).is_ok());
}

#[test]
fn issuers_are_unique_https_urls() {
    let invalid =
        |field: &str, value: &str, why: &str| format!("jwt[0].issuer.{field}: Invalid value: {value:?}: {why}");
    of_issuer("url: 'https://i', audiences: [a]", Ok(()));
    of_issuer("url: '', audiences: [a]", Err("jwt[0].issuer.url: Required value"));
    for (url, why) in [
        ("http://i", "URL scheme must be https"),
        ("https://i?x=y", "URL must not contain a query"),
        ("https://i#x", "URL must not contain a fragment"),
        ("https://u:p@i", "URL must not contain a username or password"),
        (OWN, "URL must not overlap with disallowed issuers: [https://own]"),
    ] {
        of_issuer(&format!("url: '{url}', audiences: [a]"), Err(&invalid("url", url, why)));
    }
    let same = invalid("discoveryURL", "https://i", "discoveryURL must be different from URL");
    of_issuer("url: 'https://i', audiences: [a], discoveryURL: 'https://i'", Err(&same));
    let plain = invalid("discoveryURL", "http://i/x", "URL scheme must be https");
    of_issuer("url: 'https://i', audiences: [a], discoveryURL: 'http://i/x'", Err(&plain));
    let authority =
        invalid("certificateAuthority", "<omitted>", "data does not contain any valid RSA or ECDSA certificates");
    of_issuer("url: 'https://i', audiences: [a], certificateAuthority: nonsense", Err(&authority));
    let twice =
        "jwt:\n- issuer: {url: 'https://i', audiences: [a]}\n  claimMappings: {username: {claim: sub, prefix: ''}}\n";
    let both = format!("{twice}{}", twice.trim_start_matches("jwt:\n"));
    check(&both, Err("jwt[1].issuer.url: Duplicate value: \"https://i\""));
}

#[test]
fn audiences_are_named_once_and_matched_by_a_policy() {
    let of = |audiences: &str, expected: Result<(), &str>| {
        of_issuer(&format!("url: 'https://i', audiences: {audiences}"), expected);
    };
    let policy = |value: &str, why: &str| format!("jwt[0].issuer.audienceMatchPolicy: Invalid value: {value:?}: {why}");
    of("[a, b], audienceMatchPolicy: MatchAny", Ok(()));
    of("[]", Err("jwt[0].issuer.audiences: Required value: at least one jwt[0].issuer.audiences is required"));
    of("['']", Err("jwt[0].issuer.audiences[0]: Required value"));
    let several = policy("", "audienceMatchPolicy must be MatchAny for multiple audiences");
    of("[a, b]", Err(&several));
    of("[a, a]", Err(&format!("[jwt[0].issuer.audiences[1]: Duplicate value: \"a\", {several}]")));
    let single = policy("MatchAll", "audienceMatchPolicy must be empty or MatchAny for single audience");
    of("[a], audienceMatchPolicy: MatchAll", Err(&single));
}

#[test]
fn claims_are_mapped_by_claim_or_expression() {
    const PATH: &str = "jwt[0].claimMappings";
    let of = |mappings: &str, expected: &str| check(&mapped(mappings), Err(&format!("{PATH}.{expected}")));
    let prefix =
        "Required value: prefix is required when claim is set. It can be set to an empty string to disable prefixing";
    of("{groups: {claim: g, prefix: ''}}", "username: Required value: claim or expression is required");
    of("{username: {prefix: a}}", "username: Required value: claim or expression is required");
    of("{username: {claim: sub}}", &format!("username.prefix: {prefix}"));
    let both = "Invalid value: \"\": claim and expression can't both be set";
    of("{username: {claim: sub, prefix: '', expression: claims.sub}}", &format!("username: {both}"));
    let undeclared = "username.expression: Invalid value: \"foo.bar\": compilation failed: ERROR: <input>:1:1: undeclared reference \
                      to 'foo' (in container '')\n | foo.bar\n | ^";
    of("{username: {expression: foo.bar}}", undeclared);
    let email = "username.expression: Invalid value: \"claims.email\": claims.email_verified must be used in \
                 claimMappings.username.expression or claimMappings.extra[*].valueExpression or claimValidationRules[*].expression \
                 when claims.email is used in claimMappings.username.expression";
    of("{username: {expression: claims.email}}", email);
    check(&mapped("{username: {expression: \"claims.email_verified ? claims.email : ''\"}}"), Ok(()));
    // The types of results are checked when a token is mapped.
    check(&mapped("{username: {expression: '1'}, groups: {expression: '1'}}"), Ok(()));
    let user = "username: {claim: sub, prefix: ''}";
    of(&format!("{{{user}, groups: {{claim: g}}}}"), &format!("groups.prefix: {prefix}"));
    of(&format!("{{{user}, uid: {{claim: a, expression: claims.a}}}}"), &format!("uid: {both}"));
}

#[test]
fn keys_of_extra_mappings_are_domain_prefixed_paths() {
    let of = |extra: &str, expected: &str| {
        let mappings = format!("{{username: {{claim: sub, prefix: ''}}, extra: [{extra}]}}");
        check(&mapped(&mappings), Err(&expected.replace("EXTRA", "jwt[0].claimMappings.extra")));
    };
    of(
        "{key: foo, valueExpression: claims.a}",
        "EXTRA[0].key: Invalid value: \"foo\": must be a domain-prefixed path (such as \"acme.io/foo\")",
    );
    let subdomain = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start \
                     and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
                     '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
    of(
        "{key: Example.org/Foo, valueExpression: claims.a}",
        &format!(
            "[EXTRA[0].key: Invalid value: \"Example.org\": {subdomain}, EXTRA[0].key: Invalid value: \"Example.org/Foo\": must be \
             lowercase]"
        ),
    );
    for key in ["kubernetes.io/foo", "a.k8s.io/foo"] {
        let reserved = "k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use";
        let expected = format!("EXTRA[0].key: Invalid value: {key:?}: {reserved}");
        of(&format!("{{key: {key}, valueExpression: claims.a}}"), &expected);
    }
    let one = "{key: example.org/a, valueExpression: claims.a}";
    of(&format!("{one}, {one}"), "EXTRA[1].key: Duplicate value: \"example.org/a\"");
    of("{key: example.org/a}", "EXTRA[0].valueExpression: Required value");
}

#[test]
fn rules_are_a_claim_or_an_expression() {
    let of = |rules: &str, expected: &str| {
        let path = "jwt[0].claimValidationRules";
        of_rules(&format!("claimValidationRules: [{rules}]"), Err(&format!("{path}{expected}")));
    };
    of_rules("claimValidationRules: [{claim: a, requiredValue: b}, {expression: 'claims.a == 1', message: m}]", Ok(()));
    of("{}", "[0]: Required value: claim or expression is required");
    of("{claim: a, expression: 'true'}", "[0]: Invalid value: \"a\": claim and expression can't both be set");
    of("{claim: a, message: c}", "[0].message: Invalid value: \"c\": may not be specified when claim is set");
    let value = "[0].requiredValue: Invalid value: \"c\": may not be specified when expression is set";
    of("{expression: 'true', requiredValue: c}", value);
    of("{expression: '1'}", "[0].expression: Invalid value: \"1\": must evaluate to bool");
    of("{expression: 'true'}, {expression: 'true'}", "[1].expression: Duplicate value: \"true\"");
    of("{claim: a}, {claim: a}", "[1].claim: Duplicate value: \"a\"");
    let user = |rules: &str, expected: &str| {
        of_rules(&format!("userValidationRules: [{rules}]"), Err(&format!("jwt[0].userValidationRules{expected}")));
    };
    user("{}", "[0].expression: Required value");
    let undefined = "[0].expression: Invalid value: \"user.foo == 1\": compilation failed: ERROR: <input>:1:5: undefined field \
                     'foo'\n | user.foo == 1\n | ....^";
    user("{expression: 'user.foo == 1'}", undefined);
}

#[test]
fn paths_without_credentials_take_effect_only_where_they_are_on() {
    check("anonymous: {enabled: true, conditions: [{path: /livez}, {path: ''}]}\n", Ok(()));
    let shown = r#"anonymous.conditions: Invalid value: [{"Path":"/livez"}]: enabled should be set to true when conditions are defined"#;
    check("anonymous: {enabled: false, conditions: [{path: /livez}]}\n", Err(shown));
    let anonymous = |text: &str| read(&format!("{HEAD}anonymous: {text}\n")).unwrap().anonymous.unwrap();
    let some = anonymous("{enabled: true, conditions: [{path: /livez}]}");
    assert!(some.takes("/livez") && !some.takes("/livez/ping") && !some.takes("/"));
    assert!(anonymous("{enabled: true}").takes("/any") && !anonymous("{enabled: false}").takes("/any"));
}
