//! The gateway's own credentials for requests in the name of users of client certificates.
//!
//! The credentials come from the kubeconfig: a client certificate, a token, or a token file that is read for each
//! request, since tokens of service accounts are replaced often. An exec plugin is not supported here.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use http::HeaderValue;
use keelson_access_config::{Kubeconfig, UserToken};
use keelson_http::proxy::Impersonator;
use keelson_outbound::{ClientConfig, Outbound};

/// The impersonator with the credentials of a kubeconfig.
///
/// # Errors
/// The credentials can't be used.
pub(crate) fn impersonator(
    outbound: &Outbound,
    destination: &ClientConfig,
    config: &kube::Config,
    file: &Path,
) -> Result<Impersonator, String> {
    let kubeconfig = Kubeconfig::read(file).map_err(|error| error.to_string())?;
    let (_, user) = kubeconfig.current()?;
    if config.auth_info.exec.is_some() {
        return Err("its user has an exec plugin, whose credentials the gateway can't use to impersonate".to_owned());
    }
    if config.auth_info.impersonate.is_some() {
        return Err("its user impersonates another user already".to_owned());
    }
    // A certificate without a key, or the other way round, is no credential.
    let is_whole =
        kubeconfig.data(user, "client-certificate")?.is_some() && kubeconfig.data(user, "client-key")?.is_some();
    let certificate = if is_whole { kubeconfig.certificate(user)? } else { None };
    let token = token(kubeconfig.token(user))?;
    if certificate.is_none() && token().is_none() {
        return Err("its user has neither a client certificate nor a token".to_owned());
    }
    let upstream = outbound.upstream_by_url(destination, config.tls_server_name.as_deref(), certificate)?;
    Ok(Impersonator { upstream, token: Box::new(move || token()) })
}

/// Returns the current token as a field value.
type CurrentToken = Arc<dyn Fn() -> Option<HeaderValue> + Send + Sync>;

fn token(known: Option<UserToken>) -> Result<CurrentToken, String> {
    let value = |token: &str| {
        let mut value = HeaderValue::from_str(&format!("Bearer {}", token.trim())).ok()?;
        value.set_sensitive(true);
        Some(value)
    };
    match known {
        Some(UserToken::Fixed(fixed)) => {
            let fixed = value(&fixed).ok_or("its token has characters that no header field has")?;
            Ok(Arc::new(move || Some(fixed.clone())))
        }
        Some(UserToken::File(file)) => Ok(Arc::new(move || value(&fs::read_to_string(&file).ok()?))),
        None => Ok(Arc::new(|| None)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_file_is_read_again() {
        let directory = std::env::temp_dir().join(format!("keelson-gateway-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let file = directory.join("token");
        fs::write(&file, "one\n").unwrap();
        let token = token(Some(UserToken::File(file.clone()))).unwrap();
        assert_eq!(token().unwrap(), "Bearer one");
        fs::write(&file, "two").unwrap();
        assert_eq!(token().unwrap(), "Bearer two");
        fs::remove_dir_all(&directory).unwrap();
        assert_eq!(token(), None);
    }

    #[test]
    fn a_token_that_would_end_its_field_is_refused() {
        assert!(token(Some(UserToken::Fixed("a\r\nimpersonate-user: root".to_owned()))).is_err());
    }
}
