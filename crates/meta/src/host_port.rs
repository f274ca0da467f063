//! Hosts with ports, as in URLs and tables.
//!
//! An IPv6 address is in brackets, since its colons could be confused with the colon before the port.

use std::fmt::Display;

/// `host:port`, or `[host]:port` for an IPv6 address.
pub fn host_port(host: &str, port: impl Display) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv6_hosts_are_written_in_brackets() {
        assert_eq!(host_port("example.org", 443), "example.org:443");
        assert_eq!(host_port("10.0.0.1", 80), "10.0.0.1:80");
        assert_eq!(host_port("fd00::1", 6443), "[fd00::1]:6443");
    }
}
