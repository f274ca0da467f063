//! SPDX licence expressions of manifests, evaluated against the accepted licences.
//!
//! `OR` needs one side, `AND` needs both, `A WITH b` is a licence of its own name, `/` is the old form of `OR`. An
//! invalid expression is not satisfied.

/// Returns true if the accepted licences satisfy the expression.
pub(super) fn allowed(expression: &str, allow: &[String]) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let tokens: Vec<&str> = spaced.split_whitespace().collect();
    let mut parser = Parser { tokens: &tokens, allow };
    parser.any_of().is_some_and(|satisfied| satisfied && parser.tokens.is_empty())
}

struct Parser<'a> {
    tokens: &'a [&'a str],
    allow: &'a [String],
}

impl Parser<'_> {
    fn any_of(&mut self) -> Option<bool> {
        let mut satisfied = self.all_of()?;
        while self.take("OR") {
            satisfied |= self.all_of()?;
        }
        Some(satisfied)
    }

    fn all_of(&mut self) -> Option<bool> {
        let mut satisfied = self.one()?;
        while self.take("AND") {
            satisfied &= self.one()?;
        }
        Some(satisfied)
    }

    fn one(&mut self) -> Option<bool> {
        if self.take("(") {
            let satisfied = self.any_of()?;
            return self.take(")").then_some(satisfied);
        }
        let mut name = self.word()?.to_owned();
        if self.take("WITH") {
            name = format!("{name} WITH {}", self.word()?);
        }
        Some(self.allow.contains(&name))
    }

    fn word(&mut self) -> Option<&str> {
        let (first, rest) = self.tokens.split_first()?;
        self.tokens = rest;
        (!["AND", "OR", "WITH", "(", ")"].contains(first)).then_some(first)
    }

    fn take(&mut self, token: &str) -> bool {
        let found = self.tokens.first() == Some(&token);
        if found {
            self.tokens = &self.tokens[1..];
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::allowed;

    #[test]
    fn expressions_are_read_as_spdx_has_them() {
        let allow = ["MIT".to_owned(), "ISC".to_owned(), "Apache-2.0 WITH LLVM-exception".to_owned()];
        let check = |expression: &str| allowed(expression, &allow);
        assert!(check("MIT"));
        assert!(check("GPL-3.0 OR MIT"));
        assert!(check("Unlicense/MIT"));
        assert!(check("ISC AND (GPL-3.0 OR MIT)"));
        assert!(check("Apache-2.0 WITH LLVM-exception"));
        assert!(!check("Apache-2.0"));
        assert!(!check("MIT AND GPL-3.0"));
        assert!(!check("MIT OR"));
        assert!(!check("(MIT"));
        assert!(!check("MIT MIT"));
        assert!(!check(""));
    }
}
