//! The query of a URL as pairs of text.
//!
//! Any text is a valid query. The options that read the query define its keys.

use std::borrow::Cow;

use crate::error::ApiError;
use crate::go_format;

/// The decoded pairs of a URL query, in their original order.
#[derive(Clone, Debug, Default)]
pub struct Query<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'a> Query<'a> {
    /// Parses the part of a URL after the question mark. Any text is valid.
    pub fn parse(text: &'a str) -> Self {
        Self(form_urlencoded::parse(text.as_bytes()).collect())
    }

    /// Returns an owned query.
    #[must_use]
    pub fn into_owned(self) -> Query<'static> {
        let owned = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        Query(self.0.into_iter().map(|(key, value)| (owned(key), owned(value))).collect())
    }

    /// The first value of this key.
    pub fn get<'q>(&'q self, key: &str) -> Option<&'q str> {
        self.all(key).next()
    }

    /// All values of this key.
    pub fn all<'q>(&'q self, key: &str) -> impl Iterator<Item = &'q str> {
        self.0.iter().filter(move |(name, _)| name == key).map(|(_, value)| value.as_ref())
    }

    /// All pairs.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_ref(), value.as_ref()))
    }

    /// The first value of this key as a boolean: all values except `false` and `0` are true, even an empty one.
    pub fn flag(&self, key: &str) -> Option<bool> {
        self.get(key).map(go_format::parse_bool)
    }

    /// The first value of this key as an integer.
    ///
    /// # Errors
    /// The value is not an integer.
    pub fn integer(&self, key: &str) -> Result<Option<i64>, ApiError> {
        self.get(key).map(go_format::parse_int).transpose().map_err(ApiError::BadRequest)
    }

    /// The first value of this key, if it is not empty.
    pub(super) fn text(&self, key: &str) -> Option<String> {
        self.get(key).filter(|value| !value.is_empty()).map(str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_decoded_and_the_first_value_counts() {
        let query = Query::parse("a=1&b=x%20y+z&a=2&c&=e");
        assert_eq!(query.get("a"), Some("1"));
        assert_eq!(query.all("a").collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!(query.get("b"), Some("x y z"));
        assert_eq!((query.flag("c"), query.flag("d")), (Some(true), None));
        assert_eq!(query.pairs().count(), 5);
    }

    #[test]
    fn integers_are_validated() {
        let query = Query::parse("a=-1&b=abc&c=");
        assert_eq!(query.integer("a"), Ok(Some(-1)));
        assert_eq!(query.integer("none"), Ok(None));
        let message = "strconv.ParseInt: parsing \"abc\": invalid syntax".to_owned();
        assert_eq!(query.integer("b"), Err(ApiError::BadRequest(message)));
        assert!(query.integer("c").is_err());
    }
}
