//! The gateway's own credentials for requests in the name of users of client certificates.
//!
//! They are those of the kubeconfig: a client certificate, a token, or a token file that is read for each request, since
//! tokens of service accounts are replaced often. An exec plugin is not supported here.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::HeaderValue;
use keelson_http::proxy::Impersonator;
use keelson_outbound::{ClientCertificate, ClientConfig, Outbound};
use kube::config::AuthInfo;

/// The impersonator with the credentials of a kubeconfig.
///
/// # Errors
/// The credentials can't be used.
pub(crate) fn impersonator(
    outbound: &Outbound,
    destination: &ClientConfig,
    config: &kube::Config,
) -> Result<Impersonator, String> {
    let known = &config.auth_info;
    if known.exec.is_some() {
        return Err("its user has an exec plugin, whose credentials the gateway can't use to impersonate".to_owned());
    }
    if known.impersonate.is_some() {
        return Err("its user impersonates another user already".to_owned());
    }
    let secrets = serde_json::to_value(known).map_err(|error| error.to_string())?;
    let secret = |name: &str| secrets[name].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let certificate = certificate(known, secret("client-key-data").as_deref())?;
    let token = token(secret("token"), known.token_file.as_ref().map(PathBuf::from))?;
    if certificate.is_none() && token().is_none() {
        return Err("its user has neither a client certificate nor a token".to_owned());
    }
    let upstream = outbound.upstream_by_url(destination, config.tls_server_name.as_deref(), certificate)?;
    Ok(Impersonator { upstream, token: Box::new(move || token()) })
}

/// The client certificate of a kubeconfig, from its data or its files.
fn certificate(known: &AuthInfo, key_data: Option<&str>) -> Result<Option<ClientCertificate>, String> {
    let certificate_pem = pem(known.client_certificate_data.as_deref(), known.client_certificate.as_deref())?;
    let key_pem = pem(key_data, known.client_key.as_deref())?;
    let Some((certificate_pem, key_pem)) = certificate_pem.zip(key_pem) else { return Ok(None) };
    let certificate = ClientCertificate { certificate_pem, key_pem };
    certificate.check()?;
    Ok(Some(certificate))
}

fn pem(data: Option<&str>, file: Option<&str>) -> Result<Option<String>, String> {
    let bytes = match (data, file) {
        (Some(data), _) => BASE64.decode(data).map_err(|_| "its certificate data is not base64".to_owned())?,
        (None, Some(file)) => fs::read(file).map_err(|error| format!("{file}: {error}"))?,
        (None, None) => return Ok(None),
    };
    String::from_utf8(bytes).map(Some).map_err(|_| "its certificate data is not PEM".to_owned())
}

/// Returns the current token as a field value.
type CurrentToken = Arc<dyn Fn() -> Option<HeaderValue> + Send + Sync>;

fn token(fixed: Option<String>, file: Option<PathBuf>) -> Result<CurrentToken, String> {
    let value = |token: &str| {
        let mut value = HeaderValue::from_str(&format!("Bearer {}", token.trim())).ok()?;
        value.set_sensitive(true);
        Some(value)
    };
    match (fixed, file) {
        (Some(fixed), _) => {
            let fixed = value(&fixed).ok_or("its token has characters that no header field has")?;
            Ok(Arc::new(move || Some(fixed.clone())))
        }
        (None, Some(file)) => Ok(Arc::new(move || value(&fs::read_to_string(&file).ok()?))),
        (None, None) => Ok(Arc::new(|| None)),
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
        let token = token(None, Some(file.clone())).unwrap();
        assert_eq!(token().unwrap(), "Bearer one");
        fs::write(&file, "two").unwrap();
        assert_eq!(token().unwrap(), "Bearer two");
        fs::remove_dir_all(&directory).unwrap();
        assert_eq!(token(), None);
    }

    #[test]
    fn a_token_that_would_end_its_field_is_refused() {
        assert!(token(Some("a\r\nimpersonate-user: root".to_owned()), None).is_err());
    }
}
