//! Settings of encryption at rest, under kube-apiserver's names.
//!
//! Keys are never arguments, since process lists show arguments. They are in a file.

use std::path::PathBuf;

use clap::{ArgAction, Args as ClapArgs};
use keelson_meta::FeatureGates;
use keelson_server::EncryptionConfig;

use super::kinds::switch;
use super::tools::ResultForm;

/// Settings of encryption at rest.
#[derive(ClapArgs)]
pub(crate) struct Encryption {
    /// A file with an EncryptionConfiguration (apiserver.config.k8s.io/v1): the encrypted resources and their providers. Without it
    /// no value is encrypted.
    #[arg(long, env = "KEELSON_ENCRYPTION_PROVIDER_CONFIG")]
    encryption_provider_config: Option<PathBuf>,
    /// Read that file again when it changes. New providers are used once all their key services are healthy.
    #[arg(
        long,
        env = "KEELSON_ENCRYPTION_PROVIDER_CONFIG_AUTOMATIC_RELOAD",
        action = ArgAction::Set,
        num_args = 0..=1,
        default_value = "false",
        default_missing_value = "true",
        value_parser = switch
    )]
    encryption_provider_config_automatic_reload: bool,
}

impl Encryption {
    /// The settings of a server with these feature gates.
    pub(crate) fn into_config(self, gates: &FeatureGates) -> EncryptionConfig {
        let first_kms = gates.is_on("KMSv1");
        EncryptionConfig {
            file: self.encryption_provider_config,
            reloads: self.encryption_provider_config_automatic_reload,
            first_kms,
            pauses: None,
        }
    }
}

/// Settings of `storage copy`.
#[derive(ClapArgs)]
pub(crate) struct CopyStores {
    /// The store to read.
    pub(crate) from: String,
    /// The store to write.
    pub(crate) to: String,
    /// Copy a source without objects too. By default that is an error, since the name may be mistyped.
    #[arg(long)]
    pub(crate) allow_empty: bool,
    /// A file with an EncryptionConfiguration that decrypts and encrypts the copied values. Without it stored values
    /// are copied unchanged.
    #[arg(long, env = "KEELSON_ENCRYPTION_PROVIDER_CONFIG")]
    pub(crate) encryption_provider_config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: ResultForm,
}
