//! Classification: the flow schema of a request, from rules that are indexed once for each configuration.
//!
//! Rules are numbered in the order of their flow schemas. A request is compared only with rules whose subjects name its
//! user, one of its groups or everyone, and whose resources name its resource or all. Classifying a request allocates
//! nothing.

use hashbrown::{HashMap, HashSet};

use crate::config::{CATCH_ALL, EXEMPT, FlowSchema, PageRule, ResourceRule, Subject};

/// The wildcard in all lists.
const ALL: &str = "*";
/// The prefix of the user names of service accounts.
const ACCOUNTS: &str = "system:serviceaccount:";
/// A rule with more resources is not indexed by them but compared with every request of its subjects. This limits the
/// size of the index.
const MOST_KEYS: usize = 16;
/// Lists with more names are hashed.
const SHORT: usize = 8;

/// The attributes of a request.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a> {
    /// The name of the user.
    pub user: &'a str,
    /// The groups of the user.
    pub groups: &'a [String],
    /// The verb.
    pub verb: &'a str,
    /// The path.
    pub path: &'a str,
    /// The resource. Absent for a path that is not a resource.
    pub resource: Option<ResourceAttributes<'a>>,
}

/// The resource of a request.
#[derive(Clone, Copy, Debug)]
pub struct ResourceAttributes<'a> {
    /// The API group.
    pub group: &'a str,
    /// The plural name.
    pub resource: &'a str,
    /// The subresource.
    pub subresource: Option<&'a str>,
    /// The namespace.
    pub namespace: Option<&'a str>,
}

/// The flow schemas of a configuration, in matching order.
#[derive(Debug)]
pub struct Classifier {
    rules: Vec<CompiledRule>,
    users: HashMap<String, Numbers>,
    groups: HashMap<String, Numbers>,
    /// Rules for all service accounts of a namespace.
    accounts: HashMap<String, Numbers>,
    everyone: Numbers,
    catch_all: u32,
}

#[derive(Debug)]
struct CompiledRule {
    schema: u32,
    resources: Box<[CompiledResources]>,
    pages: Box<[CompiledPages]>,
}

#[derive(Debug)]
struct CompiledResources {
    verbs: Names,
    groups: Names,
    resources: Names,
    namespaces: Names,
    cluster_scope: bool,
}

#[derive(Debug)]
struct CompiledPages {
    verbs: Names,
    paths: Box<[Box<str>]>,
}

/// The numbers of a subject's rules, in ascending order.
#[derive(Debug, Default)]
struct Numbers {
    /// The rules that name a resource, with any subresource.
    by_resource: HashMap<String, Vec<u32>>,
    any_resource: Vec<u32>,
    pages: Vec<u32>,
}

/// A list of names.
#[derive(Debug)]
enum Names {
    All,
    Few(Box<[Box<str>]>),
    Many(HashSet<Box<str>>),
}

impl Names {
    fn new(names: &[String]) -> Self {
        match names {
            [name] if name == ALL => Self::All,
            names if names.len() <= SHORT => Self::Few(names.iter().map(|name| name.as_str().into()).collect()),
            names => Self::Many(names.iter().map(|name| name.as_str().into()).collect()),
        }
    }

    fn has(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Few(names) => names.iter().any(|known| **known == *name),
            Self::Many(names) => names.contains(name),
        }
    }

    /// Returns true if the list contains a resource with a subresource, such as `pods/status`.
    fn has_below(&self, resource: &str, below: &str) -> bool {
        let is_it = |name: &str| {
            name.strip_prefix(resource).and_then(|rest| rest.strip_prefix('/')).is_some_and(|rest| rest == below)
        };
        match self {
            Self::All => true,
            Self::Few(names) => names.iter().any(|name| is_it(name)),
            Self::Many(names) => names.iter().any(|name| is_it(name)),
        }
    }
}

impl Classifier {
    /// Indexes flow schemas, which must be in matching order. If none of them is `catch-all`, the last one replaces it.
    pub fn new(schemas: &[FlowSchema]) -> Self {
        let last = schemas.len().saturating_sub(1);
        let catch_all = schemas.iter().position(|schema| schema.name == CATCH_ALL).unwrap_or(last);
        let mut classifier = Self {
            rules: Vec::new(),
            users: HashMap::new(),
            groups: HashMap::new(),
            accounts: HashMap::new(),
            everyone: Numbers::default(),
            catch_all: number_of(catch_all),
        };
        for (place, schema) in schemas.iter().enumerate() {
            for rule in &schema.rules {
                let number = number_of(classifier.rules.len());
                for subject in &rule.subjects {
                    classifier.numbers_of(subject).add(number, &rule.resources, !rule.pages.is_empty());
                }
                classifier.rules.push(CompiledRule {
                    schema: number_of(place),
                    resources: rule.resources.iter().map(CompiledResources::new).collect(),
                    pages: rule.pages.iter().map(CompiledPages::new).collect(),
                });
            }
        }
        classifier
    }

    /// Sorts flow schemas into matching order: by precedence, then by name. `exempt` is always first.
    pub fn sort(schemas: &mut [FlowSchema]) {
        schemas.sort_by(|one, other| {
            let key = |schema: &FlowSchema| (schema.name != EXEMPT, schema.precedence);
            key(one).cmp(&key(other)).then_with(|| one.name.cmp(&other.name))
        });
    }

    fn numbers_of(&mut self, subject: &Subject) -> &mut Numbers {
        match subject {
            Subject::User(name) | Subject::Group(name) if name == ALL => &mut self.everyone,
            Subject::User(name) => self.users.entry_ref(name.as_str()).or_default(),
            Subject::Group(name) => self.groups.entry_ref(name.as_str()).or_default(),
            Subject::ServiceAccount { namespace, name } if name == ALL => {
                self.accounts.entry_ref(namespace.as_str()).or_default()
            }
            Subject::ServiceAccount { namespace, name } => {
                let user = format!("{ACCOUNTS}{namespace}:{name}");
                self.users.entry_ref(user.as_str()).or_default()
            }
        }
    }

    /// The index of the flow schema of a request.
    pub fn classify(&self, request: &Attributes<'_>) -> usize {
        let mut best = u32::MAX;
        let mut look = |numbers: Option<&Numbers>| {
            if let Some(numbers) = numbers {
                self.narrow(&mut best, numbers, request);
            }
        };
        look(Some(&self.everyone));
        look(self.users.get(request.user));
        if !self.accounts.is_empty()
            && let Some((namespace, _)) = request.user.strip_prefix(ACCOUNTS).and_then(|name| name.split_once(':'))
        {
            look(self.accounts.get(namespace));
        }
        for group in request.groups {
            look(self.groups.get(group.as_str()));
        }
        let schema = self.rules.get(best as usize).map_or(self.catch_all, |rule| rule.schema);
        schema as usize
    }

    /// Sets `best` to the first of these rules that matches, if its number is lower.
    fn narrow(&self, best: &mut u32, numbers: &Numbers, request: &Attributes<'_>) {
        let mut look = |numbers: &[u32]| {
            let lower = numbers.iter().take_while(|number| **number < *best);
            let found = lower.copied().find(|number| self.rules[*number as usize].matches(request));
            if let Some(found) = found {
                *best = found;
            }
        };
        match &request.resource {
            None => look(&numbers.pages),
            Some(resource) => {
                look(&numbers.any_resource);
                if let Some(numbers) = numbers.by_resource.get(resource.resource) {
                    look(numbers);
                }
            }
        }
    }
}

impl Numbers {
    fn add(&mut self, number: u32, rules: &[ResourceRule], has_pages: bool) {
        let resources = || rules.iter().flat_map(|rule| &rule.resources);
        if resources().count() > MOST_KEYS || resources().any(|name| name == ALL) {
            push(&mut self.any_resource, number);
        } else {
            for name in resources() {
                let key = name.split_once('/').map_or(name.as_str(), |(resource, _)| resource);
                push(self.by_resource.entry_ref(key).or_default(), number);
            }
        }
        if has_pages {
            push(&mut self.pages, number);
        }
    }
}

/// Adds a number unless it equals the last one. Numbers must be added in ascending order.
fn push(numbers: &mut Vec<u32>, number: u32) {
    if numbers.last() != Some(&number) {
        numbers.push(number);
    }
}

fn number_of(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(u32::MAX)
}

impl CompiledRule {
    fn matches(&self, request: &Attributes<'_>) -> bool {
        match &request.resource {
            Some(resource) => self.resources.iter().any(|rule| rule.matches(request.verb, resource)),
            None => self.pages.iter().any(|rule| rule.matches(request.verb, request.path)),
        }
    }
}

impl CompiledResources {
    fn new(rule: &ResourceRule) -> Self {
        Self {
            verbs: Names::new(&rule.verbs),
            groups: Names::new(&rule.groups),
            resources: Names::new(&rule.resources),
            namespaces: Names::new(&rule.namespaces),
            cluster_scope: rule.cluster_scope,
        }
    }

    fn matches(&self, verb: &str, request: &ResourceAttributes<'_>) -> bool {
        let names_resource = match request.subresource {
            None => self.resources.has(request.resource),
            Some(below) => self.resources.has_below(request.resource, below),
        };
        let is_in_scope = match request.namespace {
            None => self.cluster_scope,
            Some(namespace) => self.namespaces.has(namespace),
        };
        is_in_scope && names_resource && self.verbs.has(verb) && self.groups.has(request.group)
    }
}

impl CompiledPages {
    fn new(rule: &PageRule) -> Self {
        Self { verbs: Names::new(&rule.verbs), paths: rule.paths.iter().map(|path| path.as_str().into()).collect() }
    }

    fn matches(&self, verb: &str, path: &str) -> bool {
        self.verbs.has(verb) && self.paths.iter().any(|rule| is_path(rule, path))
    }
}

/// Returns true if a path equals that of a rule, or is below it. The rules `/a` and `/a/*` differ only for the path
/// `/a`.
fn is_path(rule: &str, path: &str) -> bool {
    if rule == ALL || rule == path {
        return true;
    }
    let rule = rule.strip_suffix('*').unwrap_or(rule);
    let rule = rule.strip_suffix('/').unwrap_or(rule);
    path.strip_prefix(rule).is_some_and(|rest| rest.starts_with('/'))
}

#[cfg(test)]
mod tests;
