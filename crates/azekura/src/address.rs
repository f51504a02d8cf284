//! How servers, volumes and files are written on the command line.
//!
//! ```text
//! HOST:PORT                      a server: 127.0.0.1:7700, far.example:7700, [::1]:7700
//! HOST:PORT,HOST:PORT            several managers of one cluster, of which one leads
//! HOST:PORT/VOLUME               a volume of it
//! HOST:PORT/VOLUME:/PATH         a file in that volume
//! ```
//! The port is never left out: so a path on this machine and an address cannot be taken for each
//! other, except for a directory that is named like an address, and that can be written `./`.

use base::Name;
use base::limits::NAME_BYTES_MAX;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Text that is not what it should be; clap shows it with the option's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct AddressError(pub(crate) String);

/// A server as the user wrote it. It is resolved when it is connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    /// Name or number, an IPv6 number without its brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Other managers of the same cluster.
    pub(crate) others: Vec<(String, u16)>,
}

impl Address {
    /// One server alone.
    pub(crate) fn new(host: impl Into<String>, port: u16) -> Self {
        Self {
            host: host.into(),
            port,
            others: Vec::new(),
        }
    }

    /// Each of the managers by itself, in the order in which they were written.
    pub(crate) fn each(&self) -> impl Iterator<Item = Self> {
        let first = (self.host.clone(), self.port);
        let all = std::iter::once(first).chain(self.others.clone());
        all.map(|(host, port)| Self::new(host, port))
    }

    /// What tells this server from others in file names: `127.0.0.1_7700`, `__1_7700`.
    pub(crate) fn file_name(&self) -> String {
        let plain = |c: char| match c {
            'a'..='z' | '0'..='9' | '.' | '-' => c,
            'A'..='Z' => c.to_ascii_lowercase(),
            _ => '_',
        };
        let host: String = self.host.chars().map(plain).collect();
        // A host made of dots alone would mean a directory above.
        format!("{}_{}", host.trim_start_matches('.'), self.port)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first = (self.host.clone(), self.port);
        for (index, (host, port)) in std::iter::once(&first).chain(&self.others).enumerate() {
            let comma = if index > 0 { "," } else { "" };
            match host.contains(':') {
                true => write!(f, "{comma}[{host}]:{port}")?,
                false => write!(f, "{comma}{host}:{port}")?,
            }
        }
        Ok(())
    }
}

impl From<std::net::SocketAddr> for Address {
    fn from(address: std::net::SocketAddr) -> Self {
        Self::new(address.ip().to_string(), address.port())
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let mut all = text.split(',').map(host_and_port);
        let (host, port) = all.next().expect("splitting gives at least one")?;
        let others = all.collect::<Result<_, _>>()?;
        Ok(Self { host, port, others })
    }
}

fn host_and_port(text: &str) -> Result<(String, u16), AddressError> {
    let wrong = || {
        let hint = match text.starts_with(['/', '.']) {
            true => " (that is a path; azekura top MOUNT shows what a mount does)",
            false => "",
        };
        AddressError(format!(
            "{text:?} is not HOST:PORT, such as 127.0.0.1:7700{hint}"
        ))
    };
    let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
    let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let port: u16 = port.parse().map_err(|_| match is_number {
        true => AddressError(format!("{text:?}: ports end at {}", u16::MAX)),
        false => wrong(),
    })?;
    let bracketed = host.strip_prefix('[').map(|rest| rest.strip_suffix(']'));
    let host = match bracketed {
        Some(inner) => inner.filter(|h| h.contains(':')).ok_or_else(wrong)?,
        None if host.contains(':') => return Err(wrong()),
        None => host,
    };
    let legal = |c: char| c.is_ascii_alphanumeric() || ".-_:%".contains(c);
    if host.is_empty() || host.starts_with('-') || !host.chars().all(legal) {
        return Err(wrong());
    }
    Ok((host.to_owned(), port))
}

/// A volume of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VolumeAddress {
    pub(crate) server: Address,
    pub(crate) volume: String,
}

impl fmt::Display for VolumeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.server, self.volume)
    }
}

impl FromStr for VolumeAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let wrong = || {
            AddressError(format!(
                "{text:?} is not HOST:PORT/VOLUME, such as 127.0.0.1:7700/photos"
            ))
        };
        let (server, volume) = text.split_once('/').ok_or_else(wrong)?;
        // The server judges the name; here only what would make another shape of address.
        if volume.is_empty() || volume.contains(['/', ':']) {
            return Err(wrong());
        }
        if volume.len() > NAME_BYTES_MAX {
            let why = format!("a volume's name has at most {NAME_BYTES_MAX} bytes");
            return Err(AddressError(why));
        }
        Ok(Self {
            server: server.parse()?,
            volume: volume.to_owned(),
        })
    }
}

/// A file or directory of a volume. No part of the path is `..` or otherwise special.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileAddress {
    pub(crate) volume: VolumeAddress,
    pub(crate) path: Vec<Name>,
}

impl FileAddress {
    /// The directory that the first `depth` names of the path lead to.
    pub(crate) fn above(&self, depth: usize) -> Self {
        Self {
            volume: self.volume.clone(),
            path: self.path[..depth].to_vec(),
        }
    }
}

impl fmt::Display for FileAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.volume)?;
        if self.path.is_empty() {
            return f.write_str("/");
        }
        self.path.iter().try_for_each(|name| write!(f, "/{name}"))
    }
}

impl FromStr for FileAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let (volume, path) = match text.find(":/").filter(|at| text[..*at].contains('/')) {
            Some(at) => (&text[..at], &text[at + 1..]),
            None => (text, "/"),
        };
        let names = path.split('/').filter(|part| !matches!(*part, "" | "."));
        let names = names.map(|part| {
            Name::new(part).map_err(|error| AddressError(format!("{text:?}: {part:?}: {error}")))
        });
        Ok(Self {
            volume: volume.parse().map_err(|error| with_path(text, error))?,
            path: names.collect::<Result<_, _>>()?,
        })
    }
}

/// Where the server is well written, how the rest should be.
fn with_path(text: &str, error: AddressError) -> AddressError {
    let server = text.split('/').next().unwrap_or_default();
    match server.parse::<Address>() {
        Ok(_) => AddressError(format!(
            "{text:?} is not HOST:PORT/VOLUME or HOST:PORT/VOLUME:/PATH, such as \
             127.0.0.1:7700/photos:/2026"
        )),
        Err(_) => error,
    }
}

/// What `ls` takes: a server, a volume or a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Server(Address),
    File(FileAddress),
}

impl FromStr for Place {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        if text.contains('/') {
            text.parse().map(Self::File)
        } else {
            text.parse().map(Self::Server)
        }
    }
}

/// What `cp` takes: a path of this machine, or a file of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    Local(PathBuf),
    Remote(FileAddress),
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Control characters of a name must not reach the terminal.
            Self::Local(path) => write!(f, "{}", path.to_string_lossy().escape_debug()),
            Self::Remote(address) => address.fmt(f),
        }
    }
}

impl FromStr for Location {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let server = text.split('/').next().unwrap_or_default();
        let without_volume = match server.strip_suffix(':') {
            Some(server) => server.parse::<Address>().is_ok(),
            None => server == text && server.parse::<Address>().is_ok(),
        };
        if without_volume {
            return Err(AddressError(format!(
                "{text} names no volume: HOST:PORT/VOLUME:/PATH is a file of one, \
                 ./{text} a file here"
            )));
        }
        if !text.contains('/') || server.parse::<Address>().is_err() {
            return match text {
                "" => Err(AddressError("a path must not be empty".to_owned())),
                _ => Ok(Self::Local(PathBuf::from(text))),
            };
        }
        text.parse().map(Self::Remote)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_without_its_colon_is_told_how_it_is_written() {
        for text in ["far:7700/v:a", "far:7700/v/a", "far:7700/v:", "far:7700/"] {
            let error = text.parse::<Place>().unwrap_err().to_string();
            assert!(error.contains("HOST:PORT/VOLUME:/PATH"), "{error}");
        }
        let error = "far/v:/a".parse::<Place>().unwrap_err().to_string();
        assert!(error.contains("is not HOST:PORT,"), "{error}");
        let error = "/mnt/far".parse::<Address>().unwrap_err().to_string();
        assert!(error.ends_with("(that is a path; azekura top MOUNT shows what a mount does)"));
    }

    #[test]
    fn servers_are_a_host_and_a_port() {
        let shown = |text: &str| {
            text.parse::<Address>()
                .map(|a| (a.to_string(), a.file_name()))
        };
        assert_eq!(
            shown("127.0.0.1:7700"),
            Ok(("127.0.0.1:7700".to_owned(), "127.0.0.1_7700".to_owned()))
        );
        assert_eq!(
            shown("[::1]:7"),
            Ok(("[::1]:7".to_owned(), "__1_7".to_owned()))
        );
        assert_eq!(
            shown("Far.example:7").map(|(_, file)| file),
            Ok("far.example_7".to_owned())
        );
        let managers = "far:7,[::1]:8,near:9";
        assert_eq!(
            shown(managers),
            Ok((managers.to_owned(), "far_7".to_owned()))
        );
        for bad in [
            "",
            "far",
            "far:7,",
            ",far:7",
            ":7",
            "far:",
            "far:x",
            "::1:7",
            "[far]:7",
            "far:99999",
            "a b:7",
        ] {
            assert!(bad.parse::<Address>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_server_without_a_volume_is_no_file_of_this_machine() {
        for bad in ["far:7", "far:7:", "far:7:/", "127.0.0.1:7:/a/b"] {
            let failed = bad.parse::<Location>().map(|_| ()).expect_err(bad);
            assert!(failed.to_string().contains("no volume"), "{failed}");
        }
        for (local, path) in [("./far:7", "./far:7"), ("far:x", "far:x"), ("a:/b", "a:/b")] {
            let Ok(Location::Local(found)) = local.parse() else {
                panic!("{local}")
            };
            assert_eq!(found, PathBuf::from(path));
        }
    }

    #[test]
    fn no_host_becomes_a_path() {
        for host in ["..", ".", "a..b"] {
            let address = Address::new(host, 7);
            let name = address.file_name();
            assert!(!name.starts_with('.') && !name.contains('/'), "{name}");
        }
    }

    #[test]
    fn volumes_and_files_follow_the_server() {
        let volume: VolumeAddress = "far:7700/lab".parse().expect("a volume");
        assert_eq!(
            (volume.to_string().as_str(), volume.volume.as_str()),
            ("far:7700/lab", "lab")
        );
        let long = |len| format!("far:7700/{}", "v".repeat(len)).parse::<VolumeAddress>();
        assert!(long(255).is_ok());
        let beyond = long(256).unwrap_err().to_string();
        assert!(beyond.contains("at most 255 bytes"), "{beyond}");
        for bad in [
            "far:7700",
            "far:7700/",
            "far:7700/a/b",
            "far/a",
            "far:7700/a:b",
        ] {
            assert!(bad.parse::<VolumeAddress>().is_err(), "{bad}");
        }
        let file = |text: &str| text.parse::<FileAddress>().map(|f| f.to_string()).ok();
        assert_eq!(
            file("far:7/v:/a//b/./c/").as_deref(),
            Some("far:7/v:/a/b/c")
        );
        assert_eq!(file("far:7/v").as_deref(), Some("far:7/v:/"));
        assert_eq!(file("[::1]:7/v:/a:/b").as_deref(), Some("[::1]:7/v:/a:/b"));
        assert_eq!(file("far:7/v:/a/../b"), None);
    }

    #[test]
    fn paths_and_addresses_are_told_apart() {
        let is_local =
            |text: &str| matches!(text.parse::<Location>().expect(text), Location::Local(_));
        for local in [
            "photos/first.raw",
            "./far:7700/v:/x",
            "./far:7700",
            "/a/b",
            "x:y/z",
        ] {
            assert!(is_local(local), "{local}");
        }
        assert!(!is_local("far:7700/v:/x"));
        assert!(!is_local("far:7700/v"));
        assert!("far:7700/v:/../x".parse::<Location>().is_err());
    }
}
