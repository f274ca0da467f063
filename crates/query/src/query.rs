//! The parameters of a query, read together.
//!
//! Their names begin with [`PREFIX`], so that a request without them is an ordinary one and costs nothing here. One that nobody knows
//! is refused: what a client asked for must not be left out without a word.

use std::num::NonZeroUsize;

use crate::error::QueryError;
use crate::order::{SortBy, write_value};
use crate::path::Path;
use crate::value::{Subject, Value};

/// How the names of all parameters of a query begin.
pub const PREFIX: &str = "keelson.io/";

const SORT_BY: &str = "keelson.io/sortBy";
const PAGE: &str = "keelson.io/page";
const COUNT: &str = "keelson.io/count";
const GROUP_BY: &str = "keelson.io/groupBy";
const KNOWN: &[&str] = &[SORT_BY, PAGE, COUNT, GROUP_BY];

/// The longest value of a parameter, in bytes.
const MAX_BYTES: usize = 4096;

/// What a request asks of a list beyond what Kubernetes knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// `sortBy`: the order.
    pub sort_by: SortBy,
    /// `page`: which page of `limit` objects, from 1.
    pub page: Option<NonZeroUsize>,
    /// `groupBy`: how many objects have which value is told in place of the objects.
    pub group_by: Option<Path>,
}

impl Query {
    /// Reads the parameters of a request; `None` where none of them is one of a query.
    ///
    /// # Errors
    /// Which parameter can't be read, and why.
    pub fn parse<'q>(pairs: impl Iterator<Item = (&'q str, &'q str)>) -> Result<Option<Self>, QueryError> {
        let mut query = None;
        let mut seen = Vec::new();
        for (name, value) in pairs.filter(|(name, _)| name.starts_with(PREFIX)) {
            let Some(known) = KNOWN.iter().copied().find(|known| *known == name) else {
                return Err(QueryError::Unknown { name: name.to_owned(), known: KNOWN });
            };
            if seen.contains(&known) {
                return Err(QueryError::Repeated { name: known });
            }
            seen.push(known);
            if value.len() > MAX_BYTES {
                let why = "at most 4096 bytes are read";
                return Err(QueryError::Value { name: known, why, value: value.to_owned() });
            }
            query.get_or_insert_with(Self::default).set(known, value)?;
        }
        if let Some(Self { sort_by, page, group_by: Some(_) }) = &query
            && (!sort_by.is_by_key() || page.is_some())
        {
            return Err(QueryError::Together(
                "keelson.io/groupBy tells of values, which have no keelson.io/sortBy and no keelson.io/page",
            ));
        }
        Ok(query)
    }

    fn set(&mut self, name: &'static str, value: &str) -> Result<(), QueryError> {
        match name {
            SORT_BY => self.sort_by = SortBy::parse(name, value)?,
            PAGE => {
                let why = "pages are numbered from 1";
                let wrong = || QueryError::Value { name, why, value: value.to_owned() };
                self.page = Some(value.parse().map_err(|_| wrong())?);
            }
            GROUP_BY => self.group_by = Some(Path::parse(name, value)?),
            // That it is there is all it says: what is counted is told with every answer to a query.
            COUNT => match value {
                "true" => {}
                _ => return Err(QueryError::Value { name, why: "true is expected", value: value.to_owned() }),
            },
            _ => unreachable!("only names that are known come here"),
        }
        Ok(())
    }

    /// The part of the query that decides which objects are in the list and in which order, written so that equal ones are alike.
    pub fn canonical(&self) -> String {
        match &self.group_by {
            Some(path) => format!("groupBy={path}"),
            None => format!("sortBy={}", self.sort_by),
        }
    }

    /// Whether the list is that of an ordinary request: the same objects in the order of their keys.
    pub fn is_plain(&self) -> bool {
        self.sort_by.is_by_key() && self.group_by.is_none()
    }

    /// Hands the places of an object to `out`: one for each group that it is in, or its place in the order.
    pub fn places(&self, subject: &Subject<'_>, mut out: impl FnMut(&[u8])) {
        let mut place = Vec::new();
        let Some(path) = &self.group_by else {
            self.sort_by.write_place(subject, &mut place);
            return out(&place);
        };
        let mut found = false;
        subject.visit(path, |value| {
            found = true;
            place.clear();
            write_value(Some(&value), &mut place);
            out(&place);
            true
        });
        if !found {
            write_value(None, &mut place);
            out(&place);
        }
    }

    /// The value of the object that put it at this place of a grouped list; `None` where it has none.
    pub fn value_at<'a>(&self, subject: &Subject<'a>, place: &[u8]) -> Option<Value<'a>> {
        let mut found = None;
        let mut written = Vec::new();
        subject.visit(self.group_by.as_ref()?, |value| {
            written.clear();
            write_value(Some(&value), &mut written);
            let is_it = written == place;
            if is_it {
                found = Some(value);
            }
            !is_it
        });
        found
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(pairs: &[(&str, &str)]) -> Result<Option<Query>, String> {
        Query::parse(pairs.iter().copied()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_request_without_its_parameters_is_no_query() {
        assert_eq!(parse(&[("limit", "5"), ("sortBy", "%%"), ("page", "x")]), Ok(None));
        assert_eq!(parse(&[("keelson.io/count", "true")]), Ok(Some(Query::default())));
        let query = parse(&[("keelson.io/sortBy", "-spec.n:number"), ("keelson.io/page", "3")]).unwrap().unwrap();
        assert_eq!((query.canonical().as_str(), query.page), ("sortBy=-.spec.n:number", NonZeroUsize::new(3)));
    }

    #[test]
    fn what_can_not_be_read_is_named() {
        let check = |pairs: &[(&str, &str)], expect: &str| assert_eq!(parse(pairs), Err(expect.to_owned()));
        check(
            &[("keelson.io/sort", "a")],
            "unknown query parameter \"keelson.io/sort\": there are keelson.io/sortBy, keelson.io/page, keelson.io/count, \
             keelson.io/groupBy",
        );
        check(&[("keelson.io/page", "1"), ("keelson.io/page", "2")], "keelson.io/page is given more than once");
        check(&[("keelson.io/page", "0")], "keelson.io/page: pages are numbered from 1, not \"0\"");
        check(&[("keelson.io/count", "")], "keelson.io/count: true is expected, not \"\"");
        check(
            &[("keelson.io/groupBy", "a"), ("keelson.io/page", "1")],
            "keelson.io/groupBy tells of values, which have no keelson.io/sortBy and no keelson.io/page",
        );
    }

    proptest! {
        #[test]
        fn any_parameters_are_read_or_refused(
            pairs in proptest::collection::vec(("(keelson.io/)?(sortBy|page|count|groupBy|x)", "[-a.,:0-9\\[\\]'*]{0,12}"), 0..4)
        ) {
            let _ = Query::parse(pairs.iter().map(|(name, value)| (&**name, &**value)));
        }
    }
}
