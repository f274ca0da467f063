//! Estimates the cost of calls, by the rule of the called function.
//!
//! If the cost of a function depends on its arguments, the estimate uses their known or declared sizes.

use super::super::{AUTHORIZE, CHARACTER, MAKE_LIST, REGEX_CHARACTER, STEP, selector};
use super::{Bounds, Estimator, declared_size};
use crate::ast::{Expr, Literal};
use crate::library::formats::MAX_REGEX;
use crate::overloads::CostRule;
use crate::types::Type;

/// The size of an IP address in bytes.
const ADDRESS: Bounds = Bounds { min: 4, max: 16 };
/// The length of the longest name of a format in characters.
const FORMAT_NAME: u64 = 64;

impl<'e> Estimator<'e> {
    /// Estimates the cost of a call including its arguments, and the size of its result.
    pub(super) fn rule(
        &mut self,
        rule: CostRule,
        expr: &Expr,
        target: Option<&Expr>,
        args: &'e [Expr],
        arg_costs: &[Bounds],
    ) -> (Bounds, Option<Bounds>) {
        match (rule, args, arg_costs) {
            (CostRule::Logic, _, [left, right]) => {
                // The right side may be skipped, so it counts only for the maximum.
                return (Bounds { min: left.min, max: left.plus(*right).max }, None);
            }
            (CostRule::Conditional, [_, yes, no], [condition, yes_cost, no_cost]) => {
                if let (Some(yes), Some(no)) = (self.entries(yes), self.entries(no)) {
                    self.entries.insert(expr.id, yes.or(no));
                }
                let size = self.size_or_unknown(yes).or(self.size_or_unknown(no));
                return (condition.plus(yes_cost.or(*no_cost)), Some(size));
            }
            (CostRule::AddText | CostRule::AddList, [left, right], _) => {
                if let (Some(left), Some(right)) = (self.entries(left), self.entries(right)) {
                    self.entries.insert(expr.id, left.or(right));
                }
            }
            _ => {}
        }
        let all = arg_costs.iter().fold(Bounds::default(), |all, cost| all.plus(*cost));
        let (cost, size) = self.own(rule, target, args);
        (cost.plus(all), size)
    }

    /// Estimates the cost of a call without its arguments, and the size of its result.
    fn own(&self, rule: CostRule, target: Option<&Expr>, args: &[Expr]) -> (Bounds, Option<Bounds>) {
        // SIZE: a table with one or two lines for each rule.
        let one = (Bounds::exactly(STEP), None);
        let first = args.first();
        let size = |expr: Option<&Expr>| expr.map_or(Bounds::UNKNOWN, |expr| self.size_or_unknown(expr));
        let traversal = |expr: Option<&Expr>| size(expr).scaled(CHARACTER);
        match rule {
            CostRule::One
            | CostRule::Dyn
            | CostRule::Logic
            | CostRule::Conditional
            | CostRule::IndexList
            | CostRule::IndexMap => one,
            CostRule::Read => (traversal(first), None),
            CostRule::ReadTwice => (size(first).scaled(2.0 * CHARACTER), None),
            CostRule::InList => (size(args.get(1)), None),
            CostRule::Equal => (self.equality(args), None),
            CostRule::NotEqual | CostRule::Order => (self.comparison(args), None),
            CostRule::AddText => {
                let joined = size(first).plus(size(args.get(1)));
                (joined.scaled(CHARACTER), Some(joined))
            }
            CostRule::AddList => (Bounds::exactly(STEP), Some(size(first).plus(size(args.get(1))))),
            CostRule::Affix => (traversal(first), None),
            CostRule::Contains => (traversal(target).by(traversal(first)), None),
            CostRule::Matches if target.is_none() => one,
            CostRule::Matches => (self.regex(target, first), None),
            CostRule::Find => (self.regex(target, first), Some(Bounds { min: 0, max: size(target).max })),
            CostRule::ToBytes => {
                let text = size(first);
                (traversal(first), Some(Bounds { min: text.min, max: text.max.wrapping_mul(4) }))
            }
            CostRule::ToText => {
                let bytes = size(first);
                (traversal(first), Some(Bounds { min: bytes.min / 4, max: bytes.max }))
            }
            CostRule::Quote => {
                let text = size(first);
                let quoted = Bounds { min: text.min.wrapping_add(2), max: text.max.wrapping_mul(2).wrapping_add(2) };
                (traversal(first), Some(quoted))
            }
            CostRule::Format => (traversal(target), None),
            CostRule::Scan => (self.scan(target), None),
            CostRule::Text => (traversal(target), Some(size(target))),
            CostRule::ReadSized => (traversal(first), Some(size(first))),
            CostRule::Replace => {
                let made = replaced(size(target), size(first), size(args.get(1)));
                (size(target).scaled(2.0 * CHARACTER), Some(made))
            }
            CostRule::Split => {
                let most = match args.get(1).and_then(Expr::as_literal) {
                    Some(Literal::Int(most)) => *most as u64,
                    _ => size(target).max,
                };
                (size(target).scaled(2.0 * CHARACTER), Some(Bounds { min: 0, max: most }))
            }
            CostRule::Join => {
                let made = self.joined(target, first);
                (made.scaled(CHARACTER), Some(made))
            }
            CostRule::ContainsIp => (ADDRESS.plus(ADDRESS).scaled(CHARACTER), None),
            CostRule::ContainsIpText => (ADDRESS.plus(ADDRESS).scaled(CHARACTER).plus(traversal(first)), None),
            CostRule::ContainsCidr => (network(), None),
            CostRule::ContainsCidrText => (network().plus(traversal(first)), None),
            CostRule::Validate => (traversal(first).scaled(MAX_REGEX as f64 * REGEX_CHARACTER), None),
            CostRule::Authorize => (Bounds::exactly(AUTHORIZE), None),
            CostRule::Selector => {
                let text = size(first);
                (Bounds { min: selector(text.min), max: selector(text.max) }, None)
            }
            CostRule::Sets => (size(first).by(size(args.get(1))).plus(Bounds::exactly(STEP)), None),
            CostRule::SetsTwice => (size(first).by(size(args.get(1))).scaled(2.0).plus(Bounds::exactly(STEP)), None),
            CostRule::Slice => {
                let (from, to) = (number(first, 0), number(args.get(1), size(target).max));
                // As upstream, the size of a slice that ends before its start wraps around, so the expression is
                // refused.
                list_cost(1.0, Bounds::exactly(to.wrapping_sub(from)))
            }
            CostRule::Range => list_cost(1.0, Bounds::exactly(number(first, u64::MAX))),
            CostRule::Reverse => list_cost(1.0, size(target)),
            CostRule::Flatten => {
                let depth = if args.is_empty() { 1 } else { number(first, u64::MAX) };
                list_cost(depth as f64, size(target))
            }
            CostRule::Distinct => list_cost(2.0, size(target).by(size(target))),
            CostRule::Sort => self.sorted(target),
            CostRule::SortBy => self.sorted(first),
        }
    }

    fn comparison(&self, args: &[Expr]) -> Bounds {
        let [left, right] = args else { return Bounds::exactly(STEP) };
        let most = self.size_or_unknown(left).max.min(self.size_or_unknown(right).max);
        Bounds { min: most.min(1), max: most }.scaled(CHARACTER)
    }

    fn equality(&self, args: &[Expr]) -> Bounds {
        let [left, right] = args else { return Bounds::exactly(STEP) };
        let (of, other) = (self.type_of(left), self.type_of(right));
        if of == other
            && let Type::Opaque(name, _) = of
        {
            match &**name {
                "kubernetes.NamedFormat" => return Bounds { min: 1, max: FORMAT_NAME }.scaled(CHARACTER),
                "kubernetes.URL" => {
                    let most = self.size(right).map_or(1, |size| size.max);
                    return Bounds { min: 1, max: most }.scaled(CHARACTER);
                }
                "net.IP" | "net.CIDR" | "kubernetes.Quantity" | "kubernetes.Semver" => return Bounds::exactly(STEP),
                name if name.starts_with("kubernetes.authorization.") => return Bounds::exactly(STEP),
                _ => {}
            }
        }
        self.comparison(args)
    }

    fn regex(&self, text: Option<&Expr>, pattern: Option<&Expr>) -> Bounds {
        let size = |expr: Option<&Expr>| expr.map_or(Bounds::UNKNOWN, |expr| self.size_or_unknown(expr));
        let text = size(text).plus(Bounds::exactly(1)).scaled(CHARACTER);
        text.by(size(pattern).scaled(REGEX_CHARACTER))
    }

    /// The declared size of a list's elements.
    fn element_size(&self, list: &Expr) -> Bounds {
        let place = self.place(list);
        let element = if matches!(place, super::Origin::Nowhere) { place } else { self.element(place) };
        declared_size(element).unwrap_or(Bounds::UNKNOWN)
    }

    fn scan(&self, target: Option<&Expr>) -> Bounds {
        let Some(target) = target else { return Bounds::exactly(STEP) };
        let size = self.size_or_unknown(target);
        let element = match self.type_of(target) {
            Type::List(element) => Some(&**element),
            Type::Map(of) => Some(&of.0),
            _ => None,
        };
        let Some(element) = element else { return size.scaled(CHARACTER) };
        let mut each = Bounds::exactly(STEP);
        if matches!(element, Type::String | Type::Bytes) {
            each = each.plus(self.element_size(target).scaled(CHARACTER));
        }
        size.by(each)
    }

    fn joined(&self, target: Option<&Expr>, between: Option<&Expr>) -> Bounds {
        let Some(target) = target else { return Bounds::UNKNOWN };
        let count = self.size_or_unknown(target);
        // If the target is not known to be a list, upstream counts only the separators.
        let is_list = matches!(self.type_of(target), Type::List(_) | Type::Map(_));
        let mut made = if is_list { count.by(self.element_size(target)) } else { Bounds::default() };
        if let Some(between) = between {
            let gaps = Bounds { min: count.min.saturating_sub(1), max: count.max.saturating_sub(1) };
            made = made.plus(self.size_or_unknown(between).by(gaps));
        }
        made
    }

    fn sorted(&self, list: Option<&Expr>) -> (Bounds, Option<Bounds>) {
        let Some(list) = list else { return (Bounds::exactly(STEP), None) };
        let is_text = matches!(self.type_of(list), Type::List(of) if matches!(**of, Type::String | Type::Bytes));
        let size = self.size_or_unknown(list);
        list_cost(if is_text { 2.0 + CHARACTER } else { 2.0 }, size.by(size))
    }
}

fn network() -> Bounds {
    ADDRESS.plus(ADDRESS).scaled(CHARACTER).plus(ADDRESS.scaled(CHARACTER)).plus(Bounds::exactly(STEP))
}

/// The value of a literal argument, or a default.
fn number(arg: Option<&Expr>, default: u64) -> u64 {
    match arg.and_then(Expr::as_literal) {
        Some(Literal::Int(number)) => u64::try_from(*number).unwrap_or(0),
        _ => default,
    }
}

/// The cost and size of a created list. Each element costs `factor`.
fn list_cost(factor: f64, size: Bounds) -> (Bounds, Option<Bounds>) {
    (size.scaled(factor).plus(Bounds::exactly(STEP + MAKE_LIST)), Some(size))
}

/// The size of a text with each `from` replaced by `to`.
fn replaced(text: Bounds, from: Bounds, to: Bounds) -> Bounds {
    let ratio = |size: u64, by: u64| (size as f64 / by as f64).ceil() as u64;
    let (most, most_kept) = if from.min == 0 {
        (text.max.saturating_add(1), text.max)
    } else if to.max <= from.min {
        (0, text.max)
    } else {
        (ratio(text.max, from.min), 0)
    };
    let (least, least_kept) = if from.max == 0 {
        (text.min.saturating_add(1), text.min)
    } else if from.max <= to.min {
        (0, text.min)
    } else {
        (ratio(text.min, from.max), 0)
    };
    Bounds { min: least, max: most }.by(to).plus(Bounds { min: least_kept, max: most_kept })
}
