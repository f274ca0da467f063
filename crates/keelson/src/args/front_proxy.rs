//! Flags for forwarding requests to aggregated API servers, under upstream's names. `keelson_access::pki` validates their
//! combinations.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use keelson_server::{FrontProxyOptions, RequestHeaders};

use super::kinds::{List, ListValues as _, list};

#[derive(ClapArgs)]
pub(crate) struct FrontProxy {
    /// The client certificate for aggregated API servers (PEM), instead of one of the server's own.
    #[arg(long, env = "KEELSON_PROXY_CLIENT_CERT_FILE", requires = "proxy_client_key_file")]
    proxy_client_cert_file: Option<PathBuf>,
    /// The private key of --proxy-client-cert-file (PEM).
    #[arg(long, env = "KEELSON_PROXY_CLIENT_KEY_FILE", requires = "proxy_client_cert_file")]
    proxy_client_key_file: Option<PathBuf>,
    /// Authorities of the client certificates of front proxies (PEM). A front proxy names its user in the following header fields.
    /// Aggregated API servers read the same from the config map kube-system/extension-apiserver-authentication.
    #[arg(long, env = "KEELSON_REQUESTHEADER_CLIENT_CA_FILE")]
    requestheader_client_ca_file: Option<PathBuf>,
    /// The common names that certificates of front proxies may have; any if there are none.
    #[arg(long, env = "KEELSON_REQUESTHEADER_ALLOWED_NAMES", value_parser = list::<String>)]
    requestheader_allowed_names: Vec<List<String>>,
    /// The header fields for the name of the user.
    #[arg(
        long,
        env = "KEELSON_REQUESTHEADER_USERNAME_HEADERS",
        value_parser = list::<String>,
        default_value = "X-Remote-User"
    )]
    requestheader_username_headers: Vec<List<String>>,
    /// The header fields for the uid of the user.
    #[arg(long, env = "KEELSON_REQUESTHEADER_UID_HEADERS", value_parser = list::<String>, default_value = "X-Remote-Uid")]
    requestheader_uid_headers: Vec<List<String>>,
    /// The header fields for the groups of the user.
    #[arg(long, env = "KEELSON_REQUESTHEADER_GROUP_HEADERS", value_parser = list::<String>, default_value = "X-Remote-Group")]
    requestheader_group_headers: Vec<List<String>>,
    /// The prefix of the header fields with extra values of the user.
    #[arg(
        long,
        env = "KEELSON_REQUESTHEADER_EXTRA_HEADERS_PREFIX",
        value_parser = list::<String>,
        default_value = "X-Remote-Extra-"
    )]
    requestheader_extra_headers_prefix: Vec<List<String>>,
}

impl FrontProxy {
    pub(crate) fn into_options(self) -> FrontProxyOptions {
        FrontProxyOptions {
            client: self.proxy_client_cert_file.zip(self.proxy_client_key_file),
            client_ca: self.requestheader_client_ca_file,
            headers: RequestHeaders {
                allowed_names: self.requestheader_allowed_names.joined(),
                username: self.requestheader_username_headers.joined(),
                uid: self.requestheader_uid_headers.joined(),
                group: self.requestheader_group_headers.joined(),
                extra_prefix: self.requestheader_extra_headers_prefix.joined(),
            },
        }
    }
}
