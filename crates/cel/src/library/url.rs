//! Absolute URLs and absolute paths, parsed as Go does.
//!
//! A URL crate would parse them as browsers do. Browsers repair many texts that must be refused here.

use super::no_overload_of;
use crate::values::{EvalError, Outcome, Value};
use keelson_meta::go_format::quote;
use percent_encoding::percent_decode_str;

/// A parsed URL.
#[derive(Debug, PartialEq, Eq)]
pub struct Url {
    text: String,
    scheme: String,
    host: String,
    path: String,
    query: String,
}

impl Url {
    /// The source text. Two URLs are equal if their source texts are.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Parses an absolute URL or an absolute path.
    ///
    /// # Errors
    /// The text is neither, with Go's message.
    pub fn parse(text: &str) -> Result<Self, String> {
        let fault = |why: &str| format!("parse {}: {why}", quote(text));
        if text.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
            return Err(fault("net/url: invalid control character in URL"));
        }
        if text.is_empty() {
            return Err(fault("empty url"));
        }
        let (scheme, rest) = split_scheme(text).map_err(&fault)?;
        // The fragment is dropped, since no function returns it.
        let rest = rest.split_once('#').map_or(rest, |(rest, _)| rest);
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        if !rest.starts_with('/') {
            if scheme.is_empty() {
                return Err(fault("invalid URI for request"));
            }
            let (host, path) = (String::new(), String::new());
            return Ok(Self { text: text.to_owned(), scheme, host, path, query: query.to_owned() });
        }
        let mut host = String::new();
        let mut path = rest;
        if !scheme.is_empty()
            && !rest.starts_with("///")
            && let Some(behind) = rest.strip_prefix("//")
        {
            let end = behind.find('/').unwrap_or(behind.len());
            path = &behind[end..];
            host = authority(&behind[..end]).map_err(|why| fault(&why))?;
        } else if scheme.is_empty() && rest.starts_with("//") && !rest.starts_with("///") {
            // As in a request URI, a text that starts with two slashes is a path.
            path = rest;
        }
        check_escapes(path).map_err(|why| fault(&why))?;
        Ok(Self { text: text.to_owned(), scheme, host, path: path.to_owned(), query: query.to_owned() })
    }

    fn hostname(&self) -> &str {
        let host = self.host.rsplit_once(':').filter(|(_, port)| is_port(port)).map_or(&*self.host, |(host, _)| host);
        host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
    }

    fn port(&self) -> &str {
        self.host.rsplit_once(':').filter(|(_, port)| is_port(port)).map_or("", |(_, port)| port)
    }

    /// The path with its escapes.
    fn escaped_path(&self) -> String {
        let mut out = String::with_capacity(self.path.len());
        for byte in self.path.bytes() {
            if byte.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:@/%[]".contains(&byte) {
                out.push(char::from(byte));
            } else {
                out.push_str(&format!("%{byte:02X}"));
            }
        }
        out
    }

    /// The names of the query in order, each with its values. Invalid pairs are skipped.
    fn query(&self) -> Vec<(String, Vec<String>)> {
        let mut out: Vec<(String, Vec<String>)> = Vec::new();
        for pair in self.query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';')) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (Some(name), Some(value)) = (unescaped(name), unescaped(value)) else { continue };
            match out.iter_mut().find(|(other, _)| *other == name) {
                Some((_, values)) => values.push(value),
                None => out.push((name, vec![value])),
            }
        }
        out
    }
}

fn is_port(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

fn unescaped(text: &str) -> Option<String> {
    check_escapes(text).ok()?;
    let text = text.replace('+', " ");
    Some(percent_decode_str(&text).decode_utf8_lossy().into_owned())
}

fn check_escapes(text: &str) -> Result<(), String> {
    let bytes = text.as_bytes();
    for (at, _) in bytes.iter().enumerate().filter(|(_, byte)| **byte == b'%') {
        let digits = bytes.get(at + 1..at + 3).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        if digits.is_none() {
            let end = (at..text.len().min(at + 3)).rev().find(|end| text.is_char_boundary(end + 1)).unwrap_or(at);
            return Err(format!("invalid URL escape {}", quote(&text[at..=end])));
        }
    }
    Ok(())
}

fn split_scheme(text: &str) -> Result<(String, &str), &'static str> {
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if at > 0 => {}
            b':' if at == 0 => return Err("missing protocol scheme"),
            b':' => return Ok((text[..at].to_ascii_lowercase(), &text[at + 1..])),
            _ => break,
        }
    }
    Ok((String::new(), text))
}

/// Parses the authority: checks the user, and returns host and port.
fn authority(text: &str) -> Result<String, String> {
    let host = text.rsplit_once('@').map_or(text, |(_, host)| host);
    if let Some(user) = text.rsplit_once('@').map(|(user, _)| user) {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&byte);
        if !user.bytes().all(fits) {
            return Err("net/url: invalid userinfo".to_owned());
        }
    }
    if host.starts_with('[') {
        let Some(end) = host.rfind(']') else { return Err("missing ']' in host".to_owned()) };
        return check_port(&host[end + 1..]).map(|()| host.to_owned());
    }
    if let Some(at) = host.find(':') {
        check_port(&host[at..])?;
    }
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:[]<>\"%".contains(&byte) || byte >= 0x80;
    if let Some(at) = host.bytes().position(|byte| !fits(byte)) {
        return Err(format!("invalid character {} in host name", quote(&host[at..=at])));
    }
    check_escapes(host)?;
    Ok(percent_decode_str(host).decode_utf8_lossy().into_owned())
}

fn check_port(text: &str) -> Result<(), String> {
    if text.is_empty() || text.strip_prefix(':').is_some_and(is_port) {
        Ok(())
    } else {
        Err(format!("invalid port {} after host", quote(text)))
    }
}

pub(super) fn find(name: &str) -> Option<super::Native> {
    Some(match name {
        "url" => |args| match args {
            [Value::String(text)] => match Url::parse(text) {
                Ok(url) => Ok(Value::Url(url.into())),
                Err(fault) => Err(EvalError::new(format!("URL parse error during conversion from string: {fault}"))),
            },
            _ => Err(no_overload_of("url", args)),
        },
        "isURL" => |args| match args {
            [Value::String(text)] => Ok(Value::Bool(Url::parse(text).is_ok())),
            _ => Err(no_overload_of("isURL", args)),
        },
        "getScheme" => |args| part(args, "getScheme", |url| url.scheme.clone()),
        "getHost" => |args| part(args, "getHost", |url| url.host.clone()),
        "getHostname" => |args| part(args, "getHostname", |url| url.hostname().to_owned()),
        "getPort" => |args| part(args, "getPort", |url| url.port().to_owned()),
        "getEscapedPath" => |args| part(args, "getEscapedPath", Url::escaped_path),
        "getQuery" => |args| match args {
            [Value::Url(url)] => Ok(Value::map(
                url.query()
                    .into_iter()
                    .map(|(name, values)| (name.into(), Value::list(values.into_iter().map(Value::from).collect())))
                    .collect(),
            )),
            _ => Err(no_overload_of("getQuery", args)),
        },
        _ => return None,
    })
}

fn part<'a>(args: &[Value<'a>], name: &str, of: fn(&Url) -> String) -> Outcome<'a> {
    match args {
        [Value::Url(url)] => Ok(of(url).into()),
        _ => Err(no_overload_of(name, args)),
    }
}
