//! Proxies of the environment, for operators who enable them: `HTTPS_PROXY`, and `NO_PROXY` for exceptions.
//!
//! The variables are parsed as Go's `net/http` does, like everywhere in Kubernetes. A proxy opens a tunnel (RFC 9110
//! section 9.3.6), so it sees the destination but not the content. Calls to services of the cluster never use a proxy.

use std::net::IpAddr;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::Uri;
use keelson_meta::host_port;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The most bytes of a proxy's response to CONNECT.
const ANSWER_BYTES: usize = 8 << 10;

/// A proxy with its exceptions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proxy {
    pub(crate) host: String,
    pub(crate) port: u16,
    authorization: Option<String>,
    except: Arc<[NoProxy]>,
}

/// An exception from the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
enum NoProxy {
    Everybody,
    /// An address with the number of significant bits.
    Network(IpAddr, u32),
    /// A domain, with or without the domain itself.
    Domain {
        name: String,
        itself: bool,
        port: Option<u16>,
    },
    Address(IpAddr, Option<u16>),
}

impl Proxy {
    /// Reads the proxy from the environment; `None` if it names none.
    ///
    /// # Errors
    /// The environment's proxy is invalid.
    pub fn from_environment() -> Result<Option<Self>, String> {
        let variable =
            |names: [&str; 2]| names.iter().find_map(|name| std::env::var(name).ok().filter(|set| !set.is_empty()));
        let Some(proxy) = variable(["HTTPS_PROXY", "https_proxy"]) else { return Ok(None) };
        Self::parse(&proxy, &variable(["NO_PROXY", "no_proxy"]).unwrap_or_default()).map(Some)
    }

    /// Creates a proxy from its URL and its exceptions: comma-separated names, addresses and networks.
    ///
    /// # Errors
    /// The URL is not of the form `http://[USER:PASSWORD@]HOST[:PORT]`.
    pub fn parse(url: &str, except: &str) -> Result<Self, String> {
        const FORM: &str = "a proxy is http://[USER:PASSWORD@]HOST[:PORT]";
        let url = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
        let url: Uri = url.parse().map_err(|_| FORM)?;
        let (Some("http"), Some(authority), Some(host)) = (url.scheme_str(), url.authority(), url.host()) else {
            return Err(FORM.to_owned());
        };
        let authorization =
            authority.as_str().rsplit_once('@').map(|(user, _)| format!("Basic {}", BASE64.encode(user)));
        let except = except.split(',').map(str::trim).filter(|text| !text.is_empty()).map(NoProxy::parse).collect();
        let host = host.trim_matches(['[', ']']).to_owned();
        Ok(Self { host, port: url.port_u16().unwrap_or(80), authorization, except })
    }

    /// Returns true if calls to a host use the proxy. Calls to the local host never do.
    pub(crate) fn is_for(&self, host: &str, port: u16) -> bool {
        let address = host.parse::<IpAddr>().ok();
        let is_own = host == "localhost" || address.is_some_and(|address| address.is_loopback());
        !is_own && !self.except.iter().any(|exception| exception.holds(host, address, port))
    }

    /// Opens a tunnel through the proxy to a host.
    ///
    /// # Errors
    /// The proxy refuses it.
    pub(crate) async fn lead(&self, stream: &mut TcpStream, host: &str, port: u16) -> Result<(), String> {
        let authority = host_port(host, port);
        let authorization = self.authorization.as_ref().map(|text| format!("Proxy-Authorization: {text}\r\n"));
        let asked =
            format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n{}\r\n", authorization.unwrap_or_default());
        stream.write_all(asked.as_bytes()).await.map_err(|error| error.to_string())?;
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            // Reads byte by byte, since later bytes belong to the tunnel.
            match stream.read_u8().await {
                Ok(byte) if answer.len() < ANSWER_BYTES => answer.push(byte),
                Ok(_) => return Err(format!("the response of the proxy exceeds {ANSWER_BYTES} bytes")),
                Err(error) => return Err(error.to_string()),
            }
        }
        let answer = String::from_utf8_lossy(&answer);
        let status =
            answer.lines().next().and_then(|line| line.split_once(' ')).map_or("", |(_, status)| status.trim());
        // Go reports the text after the code.
        let text = status.split_once(' ').map_or(status, |(_, text)| text);
        if status.starts_with("200") { Ok(()) } else { Err(text.to_owned()) }
    }
}

impl NoProxy {
    fn parse(text: &str) -> Self {
        if text == "*" {
            return Self::Everybody;
        }
        let network =
            text.split_once('/').and_then(|(address, bits)| Some((address.parse().ok()?, bits.parse().ok()?)));
        if let Some((address, bits)) = network {
            return Self::Network(address, bits);
        }
        if let Ok(address) = text.trim_matches(['[', ']']).parse() {
            return Self::Address(address, None);
        }
        let (name, port) = match text.rsplit_once(':').map(|(name, port)| (name, port.parse())) {
            Some((name, Ok(port))) => (name, Some(port)),
            _ => (text, None),
        };
        if let Ok(address) = name.trim_matches(['[', ']']).parse() {
            return Self::Address(address, port);
        }
        let name = name.strip_prefix('*').unwrap_or(name).to_ascii_lowercase();
        let itself = !name.starts_with('.');
        Self::Domain { name: name.trim_start_matches('.').to_owned(), itself, port }
    }

    fn holds(&self, host: &str, address: Option<IpAddr>, to: u16) -> bool {
        match self {
            Self::Everybody => true,
            Self::Network(network, bits) => address.is_some_and(|address| is_within(address, *network, *bits)),
            Self::Address(stated, port) => address == Some(*stated) && port.is_none_or(|port| port == to),
            Self::Domain { name, itself, port } => {
                let host = host.to_ascii_lowercase();
                let below = host.strip_suffix(name.as_str()).is_some_and(|head| head.ends_with('.'));
                (below || (*itself && host == *name)) && port.is_none_or(|port| port == to)
            }
        }
    }
}

fn is_within(address: IpAddr, network: IpAddr, bits: u32) -> bool {
    match (address, network) {
        (IpAddr::V4(address), IpAddr::V4(network)) => {
            let differs = address.to_bits() ^ network.to_bits();
            bits <= u32::BITS && differs.leading_zeros() >= bits
        }
        (IpAddr::V6(address), IpAddr::V6(network)) => {
            let differs = address.to_bits() ^ network.to_bits();
            bits <= u128::BITS && differs.leading_zeros() >= bits
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxy_rules_equal_those_of_go() {
        let proxy = Proxy::parse(
            "proxy.example.com:3128",
            "in.example.com, .sub.example.com,10.0.0.0/8,192.0.2.7:443,x.org:8443",
        )
        .unwrap();
        assert_eq!((&*proxy.host, proxy.port), ("proxy.example.com", 3128));
        for host in ["example.com", "sub.example.com", "11.0.0.1", "a.b", "x.org"] {
            assert!(proxy.is_for(host, 443), "{host}");
        }
        for host in [
            "localhost",
            "127.0.0.1",
            "::1",
            "in.example.com",
            "a.IN.example.com",
            "a.sub.example.com",
            "10.1.2.3",
            "192.0.2.7",
        ] {
            assert!(!proxy.is_for(host, 443), "{host}");
        }
        assert!(!proxy.is_for("x.org", 8443) && proxy.is_for("192.0.2.7", 80));
        assert!(!Proxy::parse("http://p", "*").unwrap().is_for("example.com", 443));
        assert!(Proxy::parse("http://[::1]:80", "").unwrap().is_for("2001:db8::1", 443));
        let known = Proxy::parse("http://user:word@p", "").unwrap();
        assert_eq!((known.port, known.authorization.as_deref()), (80, Some("Basic dXNlcjp3b3Jk")));
        for bad in ["socks5://p", "https://p", "http://", ""] {
            assert!(Proxy::parse(bad, "").is_err(), "{bad}");
        }
    }
}
