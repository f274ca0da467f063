//! The ranges of service addresses and node ports, as an operator writes them.
//!
//! The ranges do not have the taken values. The start of each range is reserved for requests of a certain address or
//! port. Random allocation uses it only when the rest is taken (KEP-3070, KEP-3668).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// An IP family, with the name that services use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// `IPv4`.
    V4,
    /// `IPv6`.
    V6,
}

/// Addresses with a common prefix: `10.96.0.0/12`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    /// The first address, as a number.
    base: u128,
    length: u32,
    family: Family,
}

/// Ports that follow each other: `30000-32767`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRange {
    first: u16,
    last: u16,
}

/// The ranges of addresses and ports of services.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceRanges {
    /// One range, or one of each IP family. Services that request no family get that of the first.
    addresses: Vec<AddressRange>,
    /// The node ports that services may use, the same on all nodes.
    pub node_ports: PortRange,
}

/// The shortest and the longest IPv6 prefix, and the longest IPv4 prefix, with enough addresses and not too many.
const V6_LENGTHS: (u32, u32) = (64, 125);
const V4_LONGEST: u32 = 29;

/// A part of a range, with both ends. Empty if the first number is after the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subrange {
    /// Its first number.
    pub first: u128,
    /// Its last number.
    pub last: u128,
}

impl Family {
    /// As services write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }

    /// The family of this name.
    pub fn of_name(name: &str) -> Option<Self> {
        [Self::V4, Self::V6].into_iter().find(|family| family.name() == name)
    }

    /// The family of an address.
    pub const fn from_address(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    /// The other family.
    pub const fn other(self) -> Self {
        match self {
            Self::V4 => Self::V6,
            Self::V6 => Self::V4,
        }
    }

    const fn width(self) -> u32 {
        match self {
            Self::V4 => 32,
            Self::V6 => 128,
        }
    }
}

impl AddressRange {
    /// The family of its addresses.
    pub const fn family(&self) -> Family {
        self.family
    }

    /// The first address that can be allocated: the one after the network address.
    pub fn first(&self) -> IpAddr {
        self.address(self.base + 1)
    }

    /// Returns true if the address can be allocated: it is neither the network's nor, in IPv4, the broadcast address.
    pub fn holds(&self, address: IpAddr) -> bool {
        let whole = self.whole();
        Family::from_address(address) == self.family && (whole.first..=whole.last).contains(&number(address))
    }

    /// The address with this number.
    pub fn address(&self, number: u128) -> IpAddr {
        match self.family {
            Family::V4 => IpAddr::V4(Ipv4Addr::from(u32::try_from(number).unwrap_or(u32::MAX))),
            Family::V6 => IpAddr::V6(Ipv6Addr::from(number)),
        }
    }

    /// The number of addresses that can be allocated.
    pub fn available(&self) -> u128 {
        self.whole().len()
    }

    /// The parts, in the order in which random allocation uses them.
    pub fn parts(&self) -> [Subrange; 2] {
        split(self.whole(), self.size(), 16, 256)
    }

    fn whole(&self) -> Subrange {
        let end = self.base + (self.size() - 1);
        let last = if self.family == Family::V4 { end - 1 } else { end };
        Subrange { first: self.base + 1, last }
    }

    const fn size(&self) -> u128 {
        1 << (self.family.width() - self.length)
    }
}

impl PortRange {
    /// Returns true for a port of the range.
    pub fn holds(self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }

    /// The parts, in the order in which random allocation uses them.
    pub fn parts(self) -> [Subrange; 2] {
        let whole = Subrange { first: self.first.into(), last: self.last.into() };
        split(whole, whole.len(), 32, 128)
    }
}

impl Subrange {
    /// The number of values.
    const fn len(self) -> u128 {
        if self.last < self.first { 0 } else { self.last - self.first + 1 }
    }

    /// All numbers of the part, once each. `chance` selects the first.
    pub fn all_from(self, chance: u64) -> impl Iterator<Item = u128> {
        let len = self.len();
        let start = if len == 0 { 0 } else { u128::from(chance) % len };
        (start..len).chain(0..start).map(move |offset| self.first + offset)
    }
}

/// The part after the values reserved for explicit requests, then the reserved part.
fn split(whole: Subrange, size: u128, step: u128, most: u128) -> [Subrange; 2] {
    const LEAST: u128 = 16;
    let kept = if size <= LEAST { 0 } else { (size / step).clamp(LEAST, most) };
    let behind = Subrange { first: whole.first + kept, last: whole.last };
    [behind, Subrange { first: whole.first, last: (whole.first + kept).saturating_sub(1) }]
}

/// The number of an address.
fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u32::from(address).into(),
        IpAddr::V6(address) => u128::from(address),
    }
}

impl ServiceRanges {
    /// Ranges for addresses and ports.
    ///
    /// # Errors
    /// A message if there is no range, if there are more than two, or two of one family.
    pub fn new(addresses: Vec<AddressRange>, node_ports: PortRange) -> Result<Self, String> {
        match addresses.as_slice() {
            [_] => {}
            [first, second] if first.family != second.family => {}
            [_, _] => return Err("two ranges must be of different IP families".to_owned()),
            other => return Err(format!("there must be one or two ranges, not {}", other.len())),
        }
        Ok(Self { addresses, node_ports })
    }

    /// The ranges, in the order that was given.
    pub fn addresses(&self) -> &[AddressRange] {
        &self.addresses
    }

    /// The first range.
    pub fn primary(&self) -> AddressRange {
        self.addresses[0]
    }

    /// Returns true if there is a range of this family.
    pub fn has(&self, family: Family) -> bool {
        self.addresses.iter().any(|range| range.family == family)
    }
}

impl Default for ServiceRanges {
    /// `10.96.0.0/12`, about a million addresses, and the ports from 30000 to 32767.
    fn default() -> Self {
        let base = u32::from(Ipv4Addr::new(10, 96, 0, 0)).into();
        let addresses = vec![AddressRange { base, length: 12, family: Family::V4 }];
        Self { addresses, node_ports: PortRange { first: 30_000, last: 32_767 } }
    }
}

impl FromStr for AddressRange {
    type Err = String;

    /// Parses `10.96.0.0/12`. Bits after the prefix are dropped.
    fn from_str(text: &str) -> Result<Self, String> {
        let range = Self::parse(text).ok_or_else(|| format!("{text:?} is not a range such as 10.96.0.0/12"))?;
        let (shortest, longest) = match range.family {
            Family::V4 => (1, V4_LONGEST),
            Family::V6 => V6_LENGTHS,
        };
        if (shortest..=longest).contains(&range.length) {
            return Ok(range);
        }
        let family = range.family.name();
        Err(format!(
            "the prefix of an {family} range of services is {shortest} to {longest} bits long, unlike {text:?}"
        ))
    }
}

impl AddressRange {
    /// Parses a range of any length. `None` if the text is not a range.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, length) = text.split_once('/')?;
        let address: IpAddr = address.parse().ok()?;
        let family = Family::from_address(address);
        let length: u32 = length.parse().ok().filter(|length| (1..family.width()).contains(length))?;
        let behind = family.width() - length;
        Some(Self { base: number(address) >> behind << behind, length, family })
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address(self.base), self.length)
    }
}

impl FromStr for PortRange {
    type Err = String;

    /// Parses `30000-32767`, `30000+100`, or one port.
    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("{text:?} is not a range of ports such as 30000-32767");
        let port = |text: &str| text.trim().parse::<u16>().map_err(|_| bad());
        let (first, last) = if let Some((first, last)) = text.split_once('-') {
            (port(first)?, port(last)?)
        } else if let Some((first, more)) = text.split_once('+') {
            let first = port(first)?;
            (first, first.checked_add(port(more)?).ok_or_else(bad)?)
        } else {
            (port(text)?, port(text)?)
        };
        if first == 0 || last < first { Err(bad()) } else { Ok(Self { first, last }) }
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_they_are_written() {
        for (text, shown) in
            [("10.96.0.0/12", "10.96.0.0/12"), ("10.0.0.9/24", "10.0.0.0/24"), ("fd00::5/112", "fd00::/112")]
        {
            assert_eq!(text.parse::<AddressRange>().unwrap().to_string(), shown);
        }
        for bad in ["", "10.0.0.0", "10.0.0.0/30", "10.0.0.0/0", "fd00::/48", "fd00::/128", "10.0.0/24", "x/8"] {
            assert!(bad.parse::<AddressRange>().is_err(), "{bad}");
        }
        for (text, shown) in [("30000-32767", "30000-32767"), ("30000+9", "30000-30009"), ("80", "80-80")] {
            assert_eq!(text.parse::<PortRange>().unwrap().to_string(), shown);
        }
        for bad in ["", "2-1", "0-5", "70000", "65535+1", "a-b"] {
            assert!(bad.parse::<PortRange>().is_err(), "{bad}");
        }
        let range = |text: &str| text.parse::<AddressRange>().unwrap();
        let ports = "30000-32767".parse().unwrap();
        assert!(ServiceRanges::new(vec![range("10.0.0.0/24"), range("fd00::/112")], ports).is_ok());
        for bad in [vec![], vec![range("10.0.0.0/24"); 2], vec![range("10.0.0.0/24"); 3]] {
            assert!(ServiceRanges::new(bad, ports).is_err());
        }
    }

    fn check_parts(parts: [Subrange; 2], first: (u128, u128), then: u128, expect: [u128; 2]) {
        assert_eq!(parts.map(Subrange::len), expect);
        assert_eq!((parts[0].first - then, parts[0].last - then), first);
        let all: Vec<u128> = parts.iter().flat_map(|part| part.all_from(5)).collect();
        let mut sorted = all.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), all.len(), "each once");
    }

    #[test]
    fn a_part_of_each_range_is_reserved_for_explicit_requests() {
        let small: AddressRange = "10.0.0.0/24".parse().unwrap();
        let base = number("10.0.0.0".parse().unwrap());
        check_parts(small.parts(), (17, 254), base, [238, 16]);
        let tiny: AddressRange = "10.0.0.0/29".parse().unwrap();
        check_parts(tiny.parts(), (1, 6), base, [6, 0]);
        let ports: PortRange = "30000-32767".parse().unwrap();
        check_parts(ports.parts(), (86, 2767), 30_000, [2682, 86]);
        assert!(small.holds("10.0.0.1".parse().unwrap()) && !small.holds("10.0.0.255".parse().unwrap()));
        assert!(!small.holds("10.0.0.0".parse().unwrap()) && !small.holds("fd00::1".parse().unwrap()));
    }
}
