//! The parameters of a query, read together.
//!
//! Their names begin with [`PREFIX`], so that a request without them is an ordinary one and costs nothing here. One that nobody knows
//! is refused: what a client asked for must not be left out without a word.

use std::num::NonZeroUsize;

use crate::condition::Condition;
use crate::error::QueryError;
use crate::filter::Filter;
use crate::mask::Mask;
use crate::order::{SortBy, write_value};
use crate::path::Path;
use crate::search::Search;
use crate::value::{Subject, Value};

/// How the names of all parameters of a query begin.
pub const PREFIX: &str = "keelson.io/";

const SORT_BY: &str = "keelson.io/sortBy";
const PAGE: &str = "keelson.io/page";
const COUNT: &str = "keelson.io/count";
const GROUP_BY: &str = "keelson.io/groupBy";
const FILTER: &str = "keelson.io/filter";
const WHERE: &str = "keelson.io/where";
const SEARCH: &str = "keelson.io/search";
const FIELDS: &str = "keelson.io/fields";
const OMIT_MANAGED_FIELDS: &str = "keelson.io/omitManagedFields";
const KNOWN: &[&str] = &[SORT_BY, PAGE, COUNT, GROUP_BY, FILTER, WHERE, SEARCH, FIELDS, OMIT_MANAGED_FIELDS];

/// The longest value of a parameter, in bytes.
const MAX_BYTES: usize = 4096;

/// What a request asks of a list beyond what Kubernetes knows.
#[derive(Clone, Debug, Default)]
pub struct Query {
    /// `sortBy`: the order.
    pub sort_by: SortBy,
    /// `page`: which page of `limit` objects, from 1.
    pub page: Option<NonZeroUsize>,
    /// `groupBy`: how many objects have which value is told in place of the objects.
    pub group_by: Option<Path>,
    /// `filter`: what holds of the objects in the answer.
    pub filter: Option<Filter>,
    /// `where`: what else does.
    pub condition: Option<Condition>,
    /// `search`: the words that are found in them, and the order where no other one is given.
    pub search: Option<Search>,
    /// `fields` and `omitManagedFields`: what is shown of each object.
    pub mask: Mask,
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
        if let Some(Self { sort_by, page, group_by: Some(_), .. }) = &query
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
            FILTER => self.filter = Some(Filter::parse(name, value)?),
            WHERE => self.condition = Some(Condition::parse(name, value)?),
            SEARCH => self.search = Some(Search::parse(name, value)?),
            // In whichever order the two come.
            FIELDS if self.mask.omits_managed_fields() => {
                self.mask = Mask::parse(name, value)?.without_managed_fields();
            }
            FIELDS => self.mask = Mask::parse(name, value)?,
            OMIT_MANAGED_FIELDS => match value {
                "true" => self.mask = std::mem::take(&mut self.mask).without_managed_fields(),
                "false" => {}
                _ => {
                    let why = "true or false is expected";
                    return Err(QueryError::Value { name, why, value: value.to_owned() });
                }
            },
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
        let order = match &self.group_by {
            Some(path) => format!("groupBy={path}"),
            None => format!("sortBy={}", self.sort_by),
        };
        let filter = self.filter.as_ref().map_or("", Filter::text);
        let condition = self.condition.as_ref().map_or("", Condition::text);
        let search = self.search.as_ref().map(Search::text).unwrap_or_default();
        format!("{order:?} {filter:?} {condition:?} {search:?}")
    }

    /// How many walks through an object it takes, at the most, to tell whether it is wanted and where it stands.
    pub fn walks(&self) -> usize {
        let tests = self.filter.as_ref().map_or(0, Filter::tests);
        let searched = self.search.as_ref().map_or(0, Search::walks);
        (tests + searched + self.sort_by.terms().len() + usize::from(self.group_by.is_some())).max(1)
    }

    /// Whether one object may take some milliseconds.
    pub fn is_slow(&self) -> bool {
        self.condition.is_some() || self.filter.as_ref().is_some_and(Filter::has_patterns)
    }

    /// Whether the list is that of an ordinary request: the same objects in the order of their keys.
    pub fn is_plain(&self) -> bool {
        self.sort_by.is_by_key()
            && self.group_by.is_none()
            && self.filter.is_none()
            && self.condition.is_none()
            && self.search.is_none()
    }

    /// Hands the places of an object to `out`: one for each group that it is in, or its place in the order. None where nothing is found
    /// in it that is searched for; `fields` are texts of it that are searched besides.
    pub fn places<'f>(&self, subject: &Subject<'_>, fields: impl Iterator<Item = &'f str>, mut out: impl FnMut(&[u8])) {
        let mut place = Vec::new();
        if let Some(search) = &self.search {
            let Some(score) = search.score(subject, fields) else { return };
            if self.sort_by.is_by_key() && self.group_by.is_none() {
                // The best answer comes first.
                return out(&(u16::MAX - score).to_be_bytes());
            }
        }
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
        assert!(parse(&[("limit", "5"), ("sortBy", "%%"), ("page", "x")]).unwrap().is_none());
        assert!(parse(&[("keelson.io/count", "true")]).unwrap().unwrap().is_plain());
        let query = parse(&[("keelson.io/sortBy", "-spec.n:number"), ("keelson.io/page", "3")]).unwrap().unwrap();
        assert_eq!(query.canonical(), r#""sortBy=-.spec.n:number" "" "" """#);
        assert_eq!(query.page, NonZeroUsize::new(3));
    }

    #[test]
    fn what_can_not_be_read_is_named() {
        let check = |pairs: &[(&str, &str)], expect: &str| assert_eq!(parse(pairs).unwrap_err(), expect);
        check(
            &[("keelson.io/sort", "a")],
            "unknown query parameter \"keelson.io/sort\": there are keelson.io/sortBy, keelson.io/page, keelson.io/count, \
             keelson.io/groupBy, keelson.io/filter, keelson.io/where, keelson.io/search, keelson.io/fields, \
             keelson.io/omitManagedFields",
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
            pairs in proptest::collection::vec(("(keelson.io/)?(sortBy|page|count|groupBy|filter|where|search|fields|omitManagedFields|x)", "[-a.,:0-9\\[\\]'*]{0,12}"), 0..4)
        ) {
            let _ = Query::parse(pairs.iter().map(|(name, value)| (&**name, &**value)));
        }
    }
}
