//! Where several managers of a cluster keep what they know together.

use base::limits::META_ADDRESS_BYTES_MAX;
use meta::EtcdOptions;
use std::fmt;
use std::str::FromStr;

/// What stands before the members' addresses.
const SCHEME: &str = "etcd://";
/// The prefix of all keys if none is named.
const PREFIX: &str = "azekura";

/// An etcd cluster, and what stands there before all keys: `etcd://HOST:PORT,HOST:PORT/PREFIX`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaAddress {
    endpoints: Vec<String>,
    prefix: String,
}

/// Text that is no such address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not {SCHEME}HOST:PORT,HOST:PORT[/PREFIX]")]
pub struct MetaAddressError(String);

impl MetaAddress {
    pub(crate) fn options(&self) -> EtcdOptions {
        EtcdOptions::new(self.endpoints.clone(), &self.prefix)
    }
}

impl fmt::Display for MetaAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}", self.endpoints.join(","), self.prefix)
    }
}

impl FromStr for MetaAddress {
    type Err = MetaAddressError;

    fn from_str(text: &str) -> Result<Self, MetaAddressError> {
        let wrong = || MetaAddressError(text.to_owned());
        let rest = text.strip_prefix(SCHEME).ok_or_else(wrong)?;
        let (members, prefix) = rest.split_once('/').unwrap_or((rest, PREFIX));
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let is_host = |c: char| is_plain(c) || "[]:%".contains(c);
        let is_member = |member: &str| {
            let port = member.rsplit_once(':').filter(|(host, _)| !host.is_empty());
            let is_port = port.is_some_and(|(_, port)| port.parse::<u16>().is_ok());
            is_port && member.chars().all(is_host)
        };
        let endpoints: Vec<String> = members.split(',').map(str::to_owned).collect();
        let is_right = endpoints.iter().all(|member| is_member(member))
            && !prefix.is_empty()
            && prefix.chars().all(is_plain)
            && text.len() <= META_ADDRESS_BYTES_MAX;
        match is_right {
            true => Ok(Self {
                endpoints,
                prefix: prefix.to_owned(),
            }),
            false => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_its_members_and_a_prefix() {
        let shown = |text: &str| text.parse::<MetaAddress>().map(|at| at.to_string());
        let whole = "etcd://one:2379,[::1]:2379/lab";
        assert_eq!(shown(whole), Ok(whole.to_owned()));
        assert_eq!(shown("etcd://a:1"), Ok("etcd://a:1/azekura".to_owned()));
        for bad in [
            "",
            "a:1",
            "etcd://",
            "etcd://a",
            "etcd://a:1,",
            "etcd://a:1/",
            "etcd://a:1/b/c",
            "etcd://a:99999",
            "etcd://a b:1",
            "etcd://:1",
        ] {
            assert!(shown(bad).is_err(), "{bad}");
        }
    }
}
