//! Named formats that validate strings.
//!
//! The formats of names are the rules for the names of objects.

use super::url::Url;
use super::{no_overload_of, times};
use crate::values::Value;
use keelson_meta::names::{
    NameRule, dns_1035_label_faults, dns_label_faults, dns_subdomain_faults, label_key_faults, label_value_faults,
};

/// A format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // They are the names of the formats.
pub enum NamedFormat {
    Dns1123Label,
    Dns1123Subdomain,
    Dns1035Label,
    QualifiedName,
    Dns1123LabelPrefix,
    Dns1123SubdomainPrefix,
    Dns1035LabelPrefix,
    LabelValue,
    Uri,
    Uuid,
    Byte,
    Date,
    DateTime,
}

/// The length of the longest regular expression of a format, which is charged before a check.
pub const MAX_REGEX: u64 = 128;

impl NamedFormat {
    fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "dns1123Label" => Self::Dns1123Label,
            "dns1123Subdomain" => Self::Dns1123Subdomain,
            "dns1035Label" => Self::Dns1035Label,
            "qualifiedName" => Self::QualifiedName,
            "dns1123LabelPrefix" => Self::Dns1123LabelPrefix,
            "dns1123SubdomainPrefix" => Self::Dns1123SubdomainPrefix,
            "dns1035LabelPrefix" => Self::Dns1035LabelPrefix,
            "labelValue" => Self::LabelValue,
            "uri" => Self::Uri,
            "uuid" => Self::Uuid,
            "byte" => Self::Byte,
            "date" => Self::Date,
            "datetime" => Self::DateTime,
            _ => return None,
        })
    }

    /// The length of the format's regular expression, by which upstream charges a check.
    pub fn regex_size(self) -> u64 {
        match self {
            Self::Dns1123Label | Self::Dns1123LabelPrefix => 30,
            Self::Dns1123Subdomain | Self::Dns1123SubdomainPrefix => 60,
            Self::QualifiedName => 60,
            Self::LabelValue => 40,
            _ => MAX_REGEX,
        }
    }

    /// The faults of a text.
    pub fn faults(self, text: &str) -> Vec<String> {
        let unless = |holds: bool, fault: &str| if holds { Vec::new() } else { vec![fault.to_owned()] };
        match self {
            Self::Dns1123Label => dns_label_faults(text),
            Self::Dns1123Subdomain => dns_subdomain_faults(text),
            Self::Dns1035Label => dns_1035_label_faults(text),
            Self::QualifiedName => label_key_faults(text),
            Self::Dns1123LabelPrefix => NameRule::DnsLabel.check(text, true),
            Self::Dns1123SubdomainPrefix => NameRule::DnsSubdomain.check(text, true),
            Self::Dns1035LabelPrefix => NameRule::Dns1035Label.check(text, true),
            Self::LabelValue => label_value_faults(text),
            Self::Uri => Url::parse(text).err().into_iter().collect(),
            Self::Uuid => unless(is_uuid(text), "does not match the UUID format"),
            Self::Byte => unless(data_encoding::BASE64.decode(text.as_bytes()).is_ok(), "invalid base64"),
            Self::Date => {
                let is_date = text.len() == 10 && times::parse_timestamp(&format!("{text}T00:00:00Z")).is_some();
                unless(is_date, "invalid date")
            }
            Self::DateTime => unless(times::parse_timestamp(text).is_some(), "invalid datetime"),
        }
    }
}

fn is_uuid(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let digits = |part: &&str| part.bytes().all(|byte| byte.is_ascii_hexdigit());
    match parts.as_slice() {
        [whole] => whole.len() == 32 && digits(whole),
        parts => parts.iter().map(|part| part.len()).eq([8, 4, 4, 4, 12]) && parts.iter().all(digits),
    }
}

pub(super) fn find(name: &str) -> Option<super::Native> {
    Some(match name {
        "format.named" => {
            |args| match args {
                [Value::String(name)] => Ok(NamedFormat::from_name(name)
                    .map_or(Value::Optional(None), |format| Value::some(Value::Format(format)))),
                _ => Err(no_overload_of("format.named", args)),
            }
        }
        "validate" => |args| match args {
            [Value::Format(format), Value::String(text)] => {
                let faults = format.faults(text);
                if faults.is_empty() {
                    return Ok(Value::Optional(None));
                }
                Ok(Value::some(Value::list(faults.into_iter().map(Value::from).collect())))
            }
            _ => Err(no_overload_of("validate", args)),
        },
        "format.dns1123Label" => |_| Ok(Value::Format(NamedFormat::Dns1123Label)),
        "format.dns1123Subdomain" => |_| Ok(Value::Format(NamedFormat::Dns1123Subdomain)),
        "format.dns1035Label" => |_| Ok(Value::Format(NamedFormat::Dns1035Label)),
        "format.qualifiedName" => |_| Ok(Value::Format(NamedFormat::QualifiedName)),
        "format.dns1123LabelPrefix" => |_| Ok(Value::Format(NamedFormat::Dns1123LabelPrefix)),
        "format.dns1123SubdomainPrefix" => |_| Ok(Value::Format(NamedFormat::Dns1123SubdomainPrefix)),
        "format.dns1035LabelPrefix" => |_| Ok(Value::Format(NamedFormat::Dns1035LabelPrefix)),
        "format.labelValue" => |_| Ok(Value::Format(NamedFormat::LabelValue)),
        "format.uri" => |_| Ok(Value::Format(NamedFormat::Uri)),
        "format.uuid" => |_| Ok(Value::Format(NamedFormat::Uuid)),
        "format.byte" => |_| Ok(Value::Format(NamedFormat::Byte)),
        "format.date" => |_| Ok(Value::Format(NamedFormat::Date)),
        "format.datetime" => |_| Ok(Value::Format(NamedFormat::DateTime)),
        _ => return None,
    })
}
