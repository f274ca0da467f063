//! Requests in the name of another user, which this server does not serve yet.
//!
//! A client that impersonates relies on having fewer rights than its own. To pass over its headers would give it all of them, so such
//! requests are refused, in the words for a user who may not impersonate.

use http::HeaderMap;
use http::header::HeaderName;
use keelson_access::User;
use keelson_meta::error::ForbiddenDetail;
use keelson_meta::{ApiError, GroupResource};

const USER: HeaderName = HeaderName::from_static("impersonate-user");
const GROUP: HeaderName = HeaderName::from_static("impersonate-group");
const UID: HeaderName = HeaderName::from_static("impersonate-uid");
const EXTRA: &str = "impersonate-extra-";

/// How the names of service accounts begin.
const ACCOUNT: &str = "system:serviceaccount:";

/// Lets requests pass that are made in the name of whoever makes them.
///
/// # Errors
/// [`ApiError::Forbidden`] for others, and [`ApiError::BadRequest`] where nobody is named.
pub(super) fn refuse(user: &User, headers: &HeaderMap) -> Result<(), ApiError> {
    let is_extra = |name: &&HeaderName| name.as_str().starts_with(EXTRA);
    if !headers.contains_key(USER)
        && !headers.contains_key(GROUP)
        && !headers.contains_key(UID)
        && !headers.keys().any(|name| is_extra(&name))
    {
        return Ok(());
    }
    let wanted = text(headers, &USER);
    if wanted.is_empty() {
        return Err(ApiError::BadRequest(without_a_name(headers)));
    }
    let account = wanted.strip_prefix(ACCOUNT).and_then(|account| account.split_once(':'));
    let (resource, name, namespace) = match account {
        Some((namespace, name)) => ("serviceaccounts", name.to_owned(), Some(namespace.to_owned())),
        None => ("users", wanted, None),
    };
    Err(ApiError::forbidden(ForbiddenDetail {
        user: user.name.clone(),
        verb: "impersonate".to_owned(),
        resource: Some(GroupResource { group: String::new(), resource: resource.to_owned() }),
        name,
        namespace,
        path: None,
        subresource: None,
    }))
}

/// What upstream says of a request for groups and the like of nobody, in the form of the language that it is written in.
fn without_a_name(headers: &HeaderMap) -> String {
    let list = |values: &[String]| match values {
        [] => "[]string(nil)".to_owned(),
        values => {
            let quoted: Vec<_> = values.iter().map(|value| format!("{value:?}")).collect();
            format!("[]string{{{}}}", quoted.join(", "))
        }
    };
    let all = |name: &HeaderName| -> Vec<String> {
        headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect()
    };
    let mut extra: Vec<_> = headers
        .keys()
        .filter_map(|name| {
            let key = percent_encoding::percent_decode_str(name.as_str().strip_prefix(EXTRA)?).decode_utf8_lossy();
            Some(format!("{key:?}:{}", list(&all(name))))
        })
        .collect();
    extra.sort();
    let extra = if extra.is_empty() { "(nil)".to_owned() } else { format!("{{{}}}", extra.join(", ")) };
    format!(
        "requested &user.DefaultInfo{{Name:\"\", UID:{:?}, Groups:{}, Extra:map[string][]string{extra}}} without impersonating a user name",
        text(headers, &UID),
        list(&all(&GROUP)),
    )
}

fn text(headers: &HeaderMap, name: &HeaderName) -> String {
    headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(headers: &[(&str, &str)], expect: Result<(), (u16, &str)>) {
        let headers = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap()));
        let user = User { name: "bob".to_owned(), ..User::default() };
        let outcome = refuse(&user, &HeaderMap::from_iter(headers.clone()));
        let outcome = outcome.map_err(|error| (error.code(), error.status().message));
        let expect = expect.map_err(|(code, message)| (code, message.to_owned()));
        assert_eq!(outcome, expect, "{:?}", headers.collect::<Vec<_>>());
    }

    #[test]
    fn nobody_acts_as_another() {
        check(&[("user-agent", "x")], Ok(()));
        check(
            &[("Impersonate-User", "x"), ("Impersonate-Group", "a")],
            Err((
                403,
                "users \"x\" is forbidden: User \"bob\" cannot impersonate resource \"users\" in API group \"\" at the cluster scope",
            )),
        );
        check(
            &[("impersonate-user", "system:serviceaccount:a:b")],
            Err((
                403,
                "serviceaccounts \"b\" is forbidden: User \"bob\" cannot impersonate resource \"serviceaccounts\" in API group \"\" in the namespace \"a\"",
            )),
        );
    }

    #[test]
    fn groups_of_nobody_are_no_request() {
        check(
            &[("Impersonate-Group", "a")],
            Err((
                400,
                "requested &user.DefaultInfo{Name:\"\", UID:\"\", Groups:[]string{\"a\"}, Extra:map[string][]string(nil)} without impersonating a user name",
            )),
        );
        check(
            &[("Impersonate-Uid", "u")],
            Err((
                400,
                "requested &user.DefaultInfo{Name:\"\", UID:\"u\", Groups:[]string(nil), Extra:map[string][]string(nil)} without impersonating a user name",
            )),
        );
        check(
            &[("Impersonate-Extra-Scopes", "view")],
            Err((
                400,
                "requested &user.DefaultInfo{Name:\"\", UID:\"\", Groups:[]string(nil), Extra:map[string][]string{\"scopes\":[]string{\"view\"}}} without impersonating a user name",
            )),
        );
    }
}
