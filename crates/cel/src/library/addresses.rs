//! IP addresses and networks.
//!
//! Only canonical forms are accepted: no leading zeros, no IPv4 in IPv6, no zones. Errors have Go's texts.

use super::no_overload_of;
use crate::values::{EvalError, Outcome, Value};
use keelson_meta::go_format::quote;
use std::net::{IpAddr, Ipv4Addr};

pub(super) fn find(name: &str) -> Option<super::Native> {
    Some(match name {
        "ip" => |args| match args {
            [Value::String(text)] => address(text).map(Value::Ip).map_err(EvalError::new),
            [Value::Cidr(address, _)] => Ok(Value::Ip(*address)),
            _ => Err(no_overload_of("ip", args)),
        },
        "isIP" => |args| match args {
            [Value::String(text)] => Ok(Value::Bool(address(text).is_ok())),
            _ => Err(no_overload_of("isIP", args)),
        },
        "ip.isCanonical" => |args| match args {
            [Value::String(text)] => {
                let address = address(text).map_err(EvalError::new)?;
                Ok(Value::Bool(address.to_string() == **text))
            }
            _ => Err(no_overload_of("ip.isCanonical", args)),
        },
        "family" => |args| match args {
            [Value::Ip(address)] => Ok(Value::Int(if address.is_ipv4() { 4 } else { 6 })),
            _ => Err(no_overload_of("family", args)),
        },
        "isUnspecified" => |args| holds(args, "isUnspecified", IpAddr::is_unspecified),
        "isLoopback" => |args| holds(args, "isLoopback", IpAddr::is_loopback),
        "isLinkLocalMulticast" => |args| holds(args, "isLinkLocalMulticast", is_link_local_multicast),
        "isLinkLocalUnicast" => |args| holds(args, "isLinkLocalUnicast", is_link_local_unicast),
        "isGlobalUnicast" => |args| holds(args, "isGlobalUnicast", is_global_unicast),
        "cidr" => |args| match args {
            [Value::String(text)] => {
                network(text).map(|(address, bits)| Value::Cidr(address, bits)).map_err(|fault| wrong_network(&fault))
            }
            _ => Err(no_overload_of("cidr", args)),
        },
        "isCIDR" => |args| match args {
            [Value::String(text)] => Ok(Value::Bool(network(text).is_ok())),
            _ => Err(no_overload_of("isCIDR", args)),
        },
        "containsIP" => |args| match args {
            [Value::Cidr(base, bits), Value::Ip(inner)] => Ok(Value::Bool(is_in(*inner, *base, *bits))),
            [Value::Cidr(base, bits), Value::String(text)] => {
                // For an invalid address, upstream's error has no details.
                let inner = address(text).map_err(|_| EvalError::no_overload())?;
                Ok(Value::Bool(is_in(inner, *base, *bits)))
            }
            _ => Err(no_overload_of("containsIP", args)),
        },
        "containsCIDR" => |args| match args {
            [Value::Cidr(base, bits), Value::Cidr(inner, inner_bits)] => {
                Ok(Value::Bool(is_in(*inner, *base, *bits) && bits <= inner_bits))
            }
            [Value::Cidr(base, bits), Value::String(text)] => {
                let (inner, inner_bits) = network(text).map_err(|fault| wrong_network(&fault))?;
                Ok(Value::Bool(is_in(inner, *base, *bits) && *bits <= inner_bits))
            }
            _ => Err(no_overload_of("containsCIDR", args)),
        },
        "masked" => |args| match args {
            [Value::Cidr(base, bits)] => Ok(Value::Cidr(masked(*base, *bits), *bits)),
            _ => Err(no_overload_of("masked", args)),
        },
        "prefixLength" => |args| match args {
            [Value::Cidr(_, bits)] => Ok(Value::Int((*bits).into())),
            _ => Err(no_overload_of("prefixLength", args)),
        },
        _ => return None,
    })
}

fn wrong_network(fault: &str) -> EvalError {
    const SAID: &str = "network address parse error during conversion from string: ";
    EvalError::new(format!("{SAID}{fault}"))
}

fn holds<'a>(args: &[Value<'a>], name: &str, of: fn(&IpAddr) -> bool) -> Outcome<'a> {
    match args {
        [Value::Ip(address)] => Ok(Value::Bool(of(address))),
        _ => Err(no_overload_of(name, args)),
    }
}

fn is_link_local_multicast(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => matches!(address.octets(), [224, 0, 0, _]),
        IpAddr::V6(address) => address.segments()[0] & 0xff0f == 0xff02,
    }
}

fn is_link_local_unicast(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.segments()[0] & 0xffc0 == 0xfe80,
    }
}

fn is_global_unicast(address: &IpAddr) -> bool {
    let is_broadcast = matches!(address, IpAddr::V4(address) if *address == Ipv4Addr::BROADCAST);
    !is_broadcast
        && !address.is_unspecified()
        && !address.is_loopback()
        && !address.is_multicast()
        && !is_link_local_unicast(address)
}

/// Reads an address.
fn address(text: &str) -> Result<IpAddr, String> {
    let parsed = parse(text)
        .map_err(|fault| format!("IP Address {} parse error during conversion from string: {fault}", quote(text)))?;
    match parsed {
        IpAddr::V6(address) if address.to_ipv4_mapped().is_some() => {
            Err(format!("IPv4-mapped IPv6 address {} is not allowed", quote(text)))
        }
        address => Ok(address),
    }
}

/// Parses an address, with Go's error texts.
fn parse(text: &str) -> Result<IpAddr, String> {
    let fault = |why: String| Err(format!("ParseAddr({}): {why}", quote(text)));
    for c in text.chars() {
        match c {
            '.' => return parse_v4(text).map(IpAddr::V4).or_else(fault),
            ':' => {
                let (plain, zone) = text.split_once('%').map_or((text, None), |(plain, zone)| (plain, Some(zone)));
                return match (plain.parse(), zone) {
                    (Ok(address), None) => Ok(IpAddr::V6(address)),
                    (Ok(_), Some("")) => fault("zone must be a non-empty string".to_owned()),
                    (Ok(_), Some(_)) => Err(format!("IP address {} with zone value is not allowed", quote(text))),
                    (Err(_), _) => fault(v6_fault(plain)),
                };
            }
            '%' => return fault("missing IPv6 address".to_owned()),
            _ => {}
        }
    }
    fault("unable to parse IP".to_owned())
}

fn v6_fault(text: &str) -> String {
    let place = text.bytes().position(|byte| !byte.is_ascii_hexdigit() && byte != b':' && byte != b'.');
    match place {
        Some(at) if text.is_char_boundary(at) => {
            format!("unexpected character, want colon (at {})", quote(&text[at..]))
        }
        _ if text.contains(":::") => {
            let at = text.find(":::").map_or(0, |at| at + 2);
            format!("each colon-separated field must have at least one digit (at {})", quote(&text[at..]))
        }
        _ => "address string too short".to_owned(),
    }
}

fn parse_v4(text: &str) -> Result<Ipv4Addr, String> {
    let mut octets = Vec::new();
    let (mut value, mut digits) = (0_u32, 0);
    for (at, c) in text.char_indices() {
        match c {
            '0'..='9' => {
                if digits == 1 && value == 0 {
                    return Err("IPv4 field has octet with leading zero".to_owned());
                }
                value = value * 10 + u32::from(c) - u32::from('0');
                digits += 1;
                if value > 255 {
                    return Err("IPv4 field has value >255".to_owned());
                }
            }
            '.' => {
                if at == 0 || at == text.len() - 1 || digits == 0 {
                    return Err(format!("IPv4 field must have at least one digit (at {})", quote(&text[at..])));
                }
                if octets.len() == 3 {
                    return Err("IPv4 address too long".to_owned());
                }
                octets.push(value as u8);
                (value, digits) = (0, 0);
            }
            _ => return Err(format!("unexpected character (at {})", quote(&text[at..]))),
        }
    }
    octets.push(value as u8);
    <[u8; 4]>::try_from(octets).map(Ipv4Addr::from).map_err(|_| "IPv4 address too short".to_owned())
}

/// Parses an address with a prefix length.
fn network(text: &str) -> Result<(IpAddr, u8), String> {
    const SAID: &str = "network address parse error during conversion from string: ";
    let fault = |why: &str| format!("{SAID}netip.ParsePrefix({}): {why}", quote(text));
    let (base, bits) = text.rsplit_once('/').ok_or_else(|| fault("no '/'"))?;
    let base = parse(base).map_err(|why| fault(&why))?;
    let is_number = !bits.is_empty() && bits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number || (bits.len() > 1 && bits.starts_with('0')) {
        return Err(fault(&format!("bad bits after slash: {}", quote(bits))));
    }
    let most = if base.is_ipv4() { 32 } else { 128 };
    let length = bits.parse().ok().filter(|bits: &u8| *bits <= most);
    let length = length.ok_or_else(|| fault("prefix length out of range"))?;
    if matches!(base, IpAddr::V6(base) if base.to_ipv4_mapped().is_some()) {
        return Err(format!("IPv4-mapped IPv6 address {} is not allowed", quote(text)));
    }
    Ok((base, length))
}

fn masked(address: IpAddr, bits: u8) -> IpAddr {
    let bits = u32::from(bits);
    match address {
        IpAddr::V4(address) => Ipv4Addr::from(u32::from(address) & u32::MAX.checked_shl(32 - bits).unwrap_or(0)).into(),
        IpAddr::V6(address) => {
            std::net::Ipv6Addr::from(u128::from(address) & u128::MAX.checked_shl(128 - bits).unwrap_or(0)).into()
        }
    }
}

fn is_in(address: IpAddr, base: IpAddr, bits: u8) -> bool {
    address.is_ipv4() == base.is_ipv4() && masked(address, bits) == masked(base, bits)
}
